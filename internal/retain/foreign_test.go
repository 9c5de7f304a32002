package retain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// foreign is the i-th run on a node, by its start.
func foreign(i int, node tutti.NodeName) *tutti.RunForeign {
	began := epoch.Add(time.Duration(i) * time.Minute)
	return &tutti.RunForeign{Node: node, Foreign: tutti.Foreign{Result: tutti.Result{
		Run: tutti.RunID(fmt.Sprintf("%s-%02d", node, i)), Outcome: tutti.Unchanged, StartedAt: began, EndedAt: began,
	}}}
}

func ids(f retain.Foreigns) []tutti.RunID {
	var out []tutti.RunID
	for _, b := range f {
		out = append(out, b.Result.Run)
	}
	return out
}

// TestForeignsThatStay: the latest by their start, whenever they were told, and those
// by which the node is judged.
func TestForeignsThatStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all retain.Foreigns
		for i := range rapid.IntRange(1, 15).Draw(t, "runs") {
			b := foreign(i, "n")
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				b.Result.Outcome, b.Result.Reason = tutti.Failed, tutti.BecauseCompile
			case 1:
				b.Result.Outcome, b.Result.Counts.Changed = tutti.Changed, 1
			case 2:
				b.Whole = true
			case 4:
				b.Noop, b.Unwatched = true, true
			case 3:
				b.Noop, b.Result.Outcome = true, tutti.Failed
			}
			all = append(all, b)
		}
		var want []tutti.RunID
		last := map[string]bool{}
		for i, b := range slices.Backward(all) {
			keep := i >= len(all)-tutti.KeptForeign
			for kind, is := range map[string]bool{"disturbs": b.Disturbs(), "failed": !b.Noop && b.Result.Outcome == tutti.Failed, "whole": b.Whole} {
				keep, last[kind] = keep || is && !last[kind], last[kind] || is
			}
			if keep {
				want = append(want, b.Result.Run)
			}
		}
		var got retain.Foreigns
		var events []tutti.Body
		for _, b := range rapid.Permutation(append(all, all[0])).Draw(t, "told") {
			got, _ = got.Add(b)
			events = append(events, b)
		}
		// One that went because later ones came is told again: it goes again.
		for _, b := range all {
			got, _ = got.Add(b)
		}
		if diff := cmp.Diff(want, ids(got)); diff != "" {
			t.Fatalf("-want +kept\n%s", diff)
		}
		// The events that a fold needs give the same.
		history := log(events...)
		var again retain.Foreigns
		for _, seq := range needed(history) {
			again, _ = again.Add(history[seq-1].Body.(*tutti.RunForeign))
		}
		if diff := cmp.Diff(want, ids(again)); diff != "" {
			t.Fatalf("-want +from what is needed\n%s", diff)
		}
	})
}

func TestForeignsGoWithTheirNode(t *testing.T) {
	got := needed(log(foreign(1, "a"), foreign(1, "b"), &tutti.NodeRemoved{Node: "a"}, foreign(2, "a")))
	if diff := cmp.Diff([]uint64{2, 3, 4}, got); diff != "" {
		t.Errorf("-want +needed\n%s", diff)
	}
}
