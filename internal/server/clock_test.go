package server_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// clocks are the clocks with which a server may have written its log.
var clocks = map[string]func(seq uint64, at time.Time) time.Time{
	"ahead":     func(_ uint64, at time.Time) time.Time { return at.Add(24 * time.Hour) },
	"backwards": func(seq uint64, at time.Time) time.Time { return at.Add(-time.Duration(seq) * time.Hour) },
	"standing":  func(uint64, time.Time) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) },
}

// The function `written` returns the log as a server with another clock would have written it. The log begins with
// the first event.
func written(t *testing.T, entries []tutti.Entry, clock func(uint64, time.Time) time.Time) []tutti.Entry {
	t.Helper()
	out := make([]tutti.Entry, len(entries))
	var link tutti.Digest
	for i, e := range entries {
		var fields map[string]json.RawMessage
		var at time.Time
		if err := json.Unmarshal(e.Raw, &fields); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(fields["at"], &at); err != nil {
			t.Fatal(err)
		}
		var err error
		if fields["at"], err = json.Marshal(clock(e.Seq, at)); err != nil {
			t.Fatal(err)
		}
		out[i] = e
		if out[i].Raw, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		link = tutti.Link(link, out[i].Raw)
		out[i].Link = link
	}
	return out
}

// The order of the events in the log decides whether nodes need a run. The clock of the server that wrote the log
// does not matter (finding F8).
func TestClocksOrderNothing(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(oldLogs, "*", "log.jsonl"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no logs in %s: %v", oldLogs, err)
	}
	for _, name := range dirs {
		log := readLog(t, filepath.Dir(name))
		blobs := memory.NewBlobs()
		for _, content := range log.blobs {
			if _, err := blobs.Put(context.Background(), content); err != nil {
				t.Fatal(err)
			}
		}
		stand := func(entries []tutti.Entry) map[tutti.NodeName]string {
			var events []tutti.Event
			for _, e := range entries {
				var event tutti.Event
				if err := json.Unmarshal(e.Raw, &event); err != nil {
					t.Fatal(err)
				}
				event.Seq = e.Seq
				events = append(events, event)
			}
			if err := server.Hydrate(blobs, events); err != nil {
				t.Fatal(err)
			}
			return server.Fold(events).Standings()
		}
		want := stand(log.entries)
		if len(want) == 0 {
			t.Errorf("%s: no node stands", name)
		}
		for clock, change := range clocks {
			t.Run(filepath.Base(filepath.Dir(name))+"/"+clock, func(t *testing.T) {
				if diff := cmp.Diff(want, stand(written(t, log.entries, change))); diff != "" {
					t.Errorf("how nodes stand: -as written +by another clock\n%s", diff)
				}
			})
		}
	}
}

// A fleet also reacts if the server's clock was ahead and was then corrected.
func TestAFleetReactsAfterItsClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		nodes := []*servertest.Node{f.Join("db-01"), f.Join("web-01")}
		f.Push(twoSteps + "reactive: true\n")
		for _, n := range nodes {
			n.Claim()
		}
		time.Sleep(5 * time.Second)
		for _, n := range nodes {
			o := n.MustClaim()
			n.Gate(wire.Gate{Run: o.Run})
		}
		for _, n := range nodes {
			if o := n.Claim(); o != nil {
				for n.Gate(wire.Gate{Run: o.Run}).Verdict == tutti.GateHold {
					time.Sleep(time.Second)
				}
				n.Finish(o.Run)
			}
		}
		time.Sleep(time.Minute)
		_ = f.Stop()
		var entries []tutti.Entry
		for e, err := range f.Log.Entries(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		f = servertest.Resume(t, memory.LoadLog(written(t, entries, clocks["ahead"])), f.Blobs)
		before := len(f.Events())
		late := f.Join("web-02")
		late.Claim()
		time.Sleep(10 * time.Second)
		if late.Claim() == nil {
			t.Errorf("ten seconds after a node has joined nothing is ordered: %v", f.Since(before))
		}
	})
}
