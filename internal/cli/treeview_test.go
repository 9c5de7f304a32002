package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestATreeFitsItsTerminal(t *testing.T) {
	tree := []string{"head", "1", "2", "3", "4", "5"}
	cases := map[string]struct {
		reason string
		active int
		most   int
		want   []string
	}{
		"fits":   {"nothing is cut", 1, 6, tree},
		"top":    {"the rest is counted", 1, 4, []string{"head", "1", "2", "… 3 more lines"}},
		"middle": {"what is under way is seen", 3, 4, []string{"head", "3", "4", "… 3 more lines"}},
		"end":    {"no line is left empty", 5, 5, []string{"head", "3", "4", "5", "… 2 more lines"}},
		"tiny":   {"the head says most", 3, 1, []string{"head"}},
		"none":   {"a terminal that states no size", 3, -2, []string{"head"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fit(tree, tc.active, tc.most)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
