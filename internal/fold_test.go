package internal_test

import (
	"fmt"
	"go/ast"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/tutti-project/tutti"
)

// unfolded are the bodies of events that change no state.
var unfolded = map[string]string{
	"Denied":         "the trail has it",
	"RemoteAsked":    "the trail has it",
	"RemoteAnswered": "the trail has it",
}

var foldRE = regexp.MustCompile(`^([aA]pply|fold)`)

// TestEveryKindOfEventIsFolded: every kind of event has a case in a fold or is listed above. If a
// kind of event has no case and is not listed, somebody has forgotten the kind.
func TestEveryKindOfEventIsFolded(t *testing.T) {
	sources, err := parse(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	folded := map[string]bool{}
	for _, s := range sources {
		if s.test || !slices.Contains([]string{"internal/engine", "internal/data", "internal/converge", "internal/fold"}, s.dir) {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && foldRE.MatchString(f.Name.Name) {
				ast.Inspect(f, func(n ast.Node) bool { return noteCases(n, folded) })
			}
		}
	}
	for _, kind := range tutti.Kinds() {
		e, err := tutti.ViewEvent(fmt.Appendf(nil, `{"v":1,"kind":%q,"data":{}}`, kind))
		if err != nil {
			t.Fatal(err)
		}
		body := reflect.TypeOf(e.Body).Elem().Name()
		if why := unfolded[body]; folded[body] == (why != "") {
			t.Errorf("%s (%s): in a fold: %t, listed as unfolded: %q", kind, body, folded[body], why)
		}
	}
}

// noteCases notes the types `*tutti.NAME` in the cases of a switch.
func noteCases(n ast.Node, into map[string]bool) bool {
	c, ok := n.(*ast.CaseClause)
	if !ok {
		return true
	}
	for _, x := range c.List {
		star, _ := x.(*ast.StarExpr)
		if star == nil {
			continue
		}
		if name, ok := star.X.(*ast.SelectorExpr); ok {
			into[name.Sel.Name] = true
		}
	}
	return true
}
