package retain_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// foreign returns the i-th foreign run on a node, by start.
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

// TestForeignsThatStay checks that the latest runs by start are kept. Of each kind, the run that began last, the run
// that ended last, and the run that was reported last are kept as well.
func TestForeignsThatStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all retain.Foreigns
		for i := range rapid.IntRange(1, 15).Draw(t, "runs") {
			b := foreign(i, "n")
			b.Result.EndedAt = b.Result.EndedAt.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "lasts"))*2*time.Minute + time.Duration(i))
			switch rapid.IntRange(0, 10).Draw(t, "kind") {
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
			case 5:
				b.Local, b.Result.Counts.Changed = &tutti.Local{}, 1
			case 6:
				b.Local, b.Result.Counts.Changed = &tutti.Local{As: "as"}, 1
			case 7:
				b.Local, b.Result.Outcome = &tutti.Local{}, tutti.Failed
			}
			all = append(all, b)
		}
		told := rapid.Permutation(all).Draw(t, "told")
		want := map[tutti.RunID]bool{}
		for _, b := range all[max(0, len(all)-tutti.KeptForeign):] {
			want[b.Result.Run] = true
		}
		byEnd := slices.SortedFunc(slices.Values(all), func(a, b *tutti.RunForeign) int { return a.Result.EndedAt.Compare(b.Result.EndedAt) })
		for _, order := range []retain.Foreigns{all, told, byEnd} {
			last := map[string]tutti.RunID{}
			for _, b := range order {
				theirs, again := b.Local == nil, b.Local != nil && b.Local.As != ""
				for kind, is := range map[string]bool{
					"disturbs": theirs && b.Disturbs(), "failed": theirs && !b.Noop && b.Result.Outcome == tutti.Failed, "whole": b.Whole,
					"disturbs by itself": !theirs && !again && b.Disturbs(), "does the same again": again && b.Disturbs(),
				} {
					if is {
						last[kind] = b.Result.Run
					}
				}
			}
			for _, id := range last {
				want[id] = true
			}
		}
		var got retain.Foreigns
		var events []tutti.Body
		for _, b := range append(told, told[len(told)-1]) {
			got, _ = got.Add(b)
			events = append(events, b)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(slices.Values(ids(got)))); diff != "" {
			t.Fatalf("-want +kept\n%s", diff)
		}
		// The events that a fold needs must give the same list as all events.
		history := log(events...)
		var again retain.Foreigns
		for _, seq := range needed(history) {
			again, _ = again.Add(history[seq-1].Body.(*tutti.RunForeign))
		}
		if diff := cmp.Diff(ids(got), ids(again)); diff != "" {
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
