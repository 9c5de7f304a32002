package embed

import (
	"slices"
	"testing"
)

func TestTheShareOfASource(t *testing.T) {
	many := func(n, of int) []int { return slices.Repeat([]int{of}, n) }
	for _, tc := range []struct {
		reason string
		counts []int
		want   int
	}{
		{"nobody is there", nil, halfOpen},
		{"a fleet behind one address comes back", []int{halfOpen}, halfOpen},
		{"too many of one source", []int{10_000}, halfOpen},
		{"a flood does not cost the others anything", []int{10_000, 90, 6}, halfOpen - 96},
		{"two floods share what the others leave", []int{9_000, 96, 5_000}, (halfOpen - 96) / 2},
		{"a little of each source always stays: these may be a fleet", many(10_000, 1), alwaysOpen},
		{"a flood among a fleet", append(many(1000, 1), 10_000), halfOpen - 1000},
		{"a flood from many sources", many(1000, 100), alwaysOpen},
	} {
		if got := share(halfOpen, tc.counts); got != tc.want {
			t.Errorf("%s: %d of each, want %d", tc.reason, got, tc.want)
		}
	}
}
