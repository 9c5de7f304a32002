package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

// TestAliasesDoNotMakeAFileLarge checks files whose aliases stand for far more elements than the file has.
func TestAliasesDoNotMakeAFileLarge(t *testing.T) {
	wide := strings.Builder{}
	wide.WriteString("fleet: shop\ngroups:\n  g: {nodes: &x [n0")
	for i := range 1500 {
		fmt.Fprintf(&wide, ", n%d", i+1)
	}
	wide.WriteString("]}\n")
	for i := range 1500 {
		fmt.Fprintf(&wide, "  g%d: {nodes: *x}\n", i)
	}
	deep := strings.Builder{}
	deep.WriteString("fleet: shop\na0: &a0 [x, x]\n")
	for i := range 80 {
		fmt.Fprintf(&deep, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for reason, source := range map[string]string{
		"a list of many nodes in many groups":   wide.String(),
		"each list has the one before it twice": deep.String(),
	} {
		_, err := Parse("tutti.yaml", []byte(source))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), "with its aliases the file has more than 2000000 values") {
			t.Errorf("%s: %.300v", reason, err)
		}
	}
	few := "fleet: shop\ngroups:\n  g: {nodes: &x [a, b]}\n  h: {nodes: *x}\n"
	if f, err := Parse("tutti.yaml", []byte(few)); err != nil || len(f.Groups[1].Nodes) != 2 {
		t.Errorf("an alias of a list: %+v, %v", f.Groups, err)
	}
}
