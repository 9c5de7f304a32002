package stage

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/cli"
)

// TestExamples: the command line offers exactly the examples that exist.
func TestExamples(t *testing.T) {
	if diff := cmp.Diff(slices.Sorted(maps.Keys(examples)), cli.Demos); diff != "" {
		t.Errorf("-examples +demos\n%s", diff)
	}
}
