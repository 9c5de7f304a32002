package server_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const goneFleet = `
fleet: test
environment: {name: production, path: ./code}
groups:
  scaled: {joined: true, remove_after: 1h}
  slow: {joined: true, remove_after: 3h}
  kept: {joined: true}
`

// TestSilentNodesAreRemoved checks that the server removes a node that is silent for longer than its group allows, and no
// other node. The time in which the server did not run does not count.
func TestSilentNodesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		ctx := servertest.Operator()
		f.Push(goneFleet)
		nodes := map[string]*servertest.Node{}
		for name, groups := range map[tutti.NodeName][]tutti.GroupName{
			"silent": {"scaled"}, "live": {"scaled"}, "paused": {"scaled"}, "both": {"scaled", "slow"}, "other": {"kept"},
		} {
			n := machine(f, name, string(name))
			_, err := f.Enrol(ctx, n.Request(newToken(t, f, api.CreateToken{Name: string(name), Groups: groups})))
			if err != nil {
				t.Fatal(err)
			}
			nodes[string(name)] = n
		}
		if _, err := f.Pause(ctx, api.Pause{Target: "paused", Reason: "repair"}); err != nil {
			t.Fatal(err)
		}
		pass := func(d time.Duration) {
			t.Helper()
			for range d / (10 * time.Minute) {
				time.Sleep(10 * time.Minute)
				nodes["live"].Fleet = f
				if err := nodes["live"].Call(wire.OpBeat, wire.Beat{}, nil); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		want := func(when string, want ...string) {
			t.Helper()
			all, err := f.ListNodes(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range all {
				got = append(got, string(n.Node))
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: the fleet has %v, want %v", when, got, want)
			}
		}
		pass(50 * time.Minute)
		want("after 50 minutes", "both", "live", "other", "paused", "silent")
		f = f.Restart()
		pass(50 * time.Minute)
		want("50 minutes after the server's start", "both", "live", "other", "paused", "silent")
		pass(20 * time.Minute)
		want("70 minutes after the server's start", "both", "live", "other", "paused")
		if !slices.Contains(f.Identity.Revoked(), servertest.Key("silent")) {
			t.Error("the key of the removed node still counts")
		}
		pass(2 * time.Hour)
		want("after three hours", "live", "other", "paused")
		removed := 0
		for _, e := range f.Events() {
			if b, ok := e.Body.(*tutti.NodeRemoved); ok && e.By == "server" && (b.Node == "silent" || b.Node == "both") {
				removed++
			}
		}
		if removed != 2 {
			t.Errorf("%d events of the server say that a node was removed, want 2", removed)
		}
	})
}
