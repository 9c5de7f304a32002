package internal_test

import (
	"fmt"
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// maxMethods bounds the methods of one type in internal/. Every method of a type has access to all fields
// of the type.
const maxMethods = 40

// oldTypes are the types that have more methods than maxMethods, with the number of their methods. A number may only
// fall. When you have removed methods, lower the number. When the number has reached maxMethods, remove the row.
var oldTypes = map[string]int{
	"internal/agent.Agent":    120,
	"internal/converge.State": 81,
	"internal/data.State":     84,
	"internal/engine.State":   47,
	"internal/explain.Reader": 42,
	"internal/fleet.reader":   89,
	"internal/httpapi.Client": 60,
	"internal/powerfs.FS":     45,
}

// methodsOf counts the methods of each type in internal/, without the methods in tests.
func methodsOf(sources []source) map[string]int {
	out := map[string]int{}
	for _, s := range sources {
		if s.test || !strings.HasPrefix(s.dir, "internal/") {
			continue
		}
		for _, d := range s.file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv != nil {
				out[s.dir+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	return out
}

// receiver returns the name of the receiver's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return fmt.Sprintf("%T", of)
}

// tooMany returns one line for each wrong number of methods.
func tooMany(methods, old map[string]int) []string {
	var found []string
	for name, n := range methods {
		if before := old[name]; n > max(maxMethods, before) {
			found = append(found, fmt.Sprintf("%s has %d methods, at most %d: split it by subject", name, n, max(maxMethods, before)))
		}
	}
	for name, before := range old {
		switch n := methods[name]; {
		case n <= maxMethods:
			found = append(found, fmt.Sprintf("%s has %d methods: take it out of oldTypes", name, n))
		case n < before:
			found = append(found, fmt.Sprintf("%s has %d methods: lower its number in oldTypes", name, n))
		}
	}
	slices.Sort(found)
	return found
}

func TestNoTypeHasManyMethods(t *testing.T) {
	sources, err := parse(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range tooMany(methodsOf(sources), oldTypes) {
		t.Error(v)
	}
}

func TestMethodsAreCounted(t *testing.T) {
	many := "package a\n" + strings.Repeat("func (b *Big[T]) m() {}\n", maxMethods+1) + strings.Repeat("func (Old) m() {}\n", maxMethods+3) + "func (Small) m() {}\n"
	sources, err := parse(fstest.MapFS{
		"internal/a/a.go":      {Data: []byte(many)},
		"internal/a/a_test.go": {Data: []byte(strings.ReplaceAll(many, "Small", "Big"))},
		"outside/a.go":         {Data: []byte(many)},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := tooMany(methodsOf(sources), map[string]int{"internal/a.Old": maxMethods + 5, "internal/a.Small": maxMethods + 1})
	want := []string{
		"internal/a.Big has 41 methods, at most 40: split it by subject",
		"internal/a.Old has 43 methods: lower its number in oldTypes",
		"internal/a.Small has 1 methods: take it out of oldTypes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
