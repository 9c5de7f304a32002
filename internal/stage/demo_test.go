package stage

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/cli"
)

// TestExamples: what the command line offers is what there is.
func TestExamples(t *testing.T) {
	if diff := cmp.Diff(slices.Sorted(maps.Keys(examples)), cli.Demos); diff != "" {
		t.Errorf("-examples +demos\n%s", diff)
	}
}
