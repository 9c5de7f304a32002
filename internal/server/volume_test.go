package server_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/internal/sweep"
	"github.com/tutti-project/tutti/wire"
)

const (
	volumeJobs  = 1000
	volumeNodes = 50
	volumeKeep  = 100
	volumeEvery = 1000 // events
)

// volume is a server on a real log, which grows by thousands of jobs.
type volume struct {
	*servertest.Fleet
	js    jetstream.JetStream
	ahead *atomic.Int64 // how far the clock for the sweep of blobs is ahead
}

func startVolume(t *testing.T, bus *bustest.Bus) *volume {
	t.Helper()
	nc := bus.Log(t)
	v := &volume{ahead: &atomic.Int64{}}
	stored, err := natsbus.OpenBlobs(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	blobs := sweep.New(stored, func() time.Time { return time.Now().Add(time.Duration(v.ahead.Load())) })
	log, err := natsbus.OpenLog(t.Context(), nc, natsbus.LogOptions{Blobs: blobs})
	if err != nil {
		t.Fatal(err)
	}
	v.js = bus.JetStream(t)
	v.Fleet = servertest.Start(t, func(o *server.Options) {
		o.Log, o.Blobs, o.Keep, o.SnapshotEvery = log, blobs, engine.Keep{Jobs: volumeKeep}, volumeEvery
	})
	return v
}

func (v *volume) messages(t *testing.T, stream string) uint64 {
	t.Helper()
	s, err := v.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// The method `run` starts and completes this many jobs of one node, one after the other.
func (v *volume) run(t *testing.T, n *servertest.Node, jobs int) {
	plan := tutti.PlanName(n.Name)
	for range jobs {
		if _, err := v.StartJob(servertest.Operator(), api.StartJob{Plan: plan, Mode: tutti.ModeApply}); err != nil {
			t.Error(err)
			return
		}
		run := n.MustClaim().Run
		n.Gate(wire.Gate{Run: run, Exports: []tutti.Export{database(string(run))}})
		record := fmt.Appendf(nil, `{"run":%q,"node":%q}`, run, n.Name)
		if _, err := v.Handle(t.Context(), n.Key, wire.OpBlobPut, record); err != nil {
			t.Error(err)
			return
		}
		result := servertest.Result(run, tutti.Changed)
		result.Record = tutti.DigestOf(record)
		if err := n.Call(wire.OpResult, result, nil); err != nil {
			t.Error(err)
			return
		}
	}
}

// TestThePastIsBounded checks that the data of a server does not grow with the number of its old
// jobs. Each of these jobs has a run that exports a resource and sends a record. All numbers are a
// tenth of a real server's numbers. The package bench does the same with 10,000 jobs.
func TestThePastIsBounded(t *testing.T) {
	bus := bustest.Start(t)
	v := startVolume(t, bus)
	groups, plans := "", ""
	var nodes []*servertest.Node
	for i := range volumeNodes {
		name := tutti.NodeName(fmt.Sprintf("node-%03d", i))
		nodes = append(nodes, v.Join(name))
		groups += string(name) + ", "
		plans += fmt.Sprintf("  %s: {steps: [{run: %s}]}\n", name, name)
	}
	v.Push("fleet: volume\nenvironment: {name: production, path: ./code}\ngroups: {all: {nodes: [" + groups + "]}}\n" +
		"grants: [{to: all, exports: [{type: Database, defined: true, most: 50000}]}]\nplans:\n" + plans)
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { v.run(t, n, volumeJobs/volumeNodes) })
	}
	wg.Wait()
	if job := v.Start("node-000", tutti.ModeApply); job != "node-000-1001" {
		t.Fatalf("the next job is %s", job)
	}
	nodes[0].Pass()

	v.wantTrimmed(t)
	before := v.State()
	v.wantBounded(t, before)
	before = v.State() // the sweep has recorded which reports were dropped
	_ = v.Stop()
	next := startVolume(t, bus)
	if diff := before.Diff(next.State(), time.Now()); diff != "" {
		t.Errorf("-before the restart +after it\n%s", diff)
	}
}

// wantTrimmed waits until the log has dropped the events of the last snapshot and is too short for another
// snapshot. Without this wait, this server or the next one could take a snapshot at any time, and change
// the compared state. Without snapshots the log would have nine events for each job.
func (v *volume) wantTrimmed(t *testing.T) {
	t.Helper()
	deadline := time.After(hang)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		got := v.messages(t, "TUTTI_LOG")
		if got < volumeEvery {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the log has %d messages of %d jobs %s after the last one, want fewer than %d", got, volumeJobs, hang, volumeEvery)
		case <-look.C:
		}
	}
}

// wantBounded checks the data that a stopped server leaves after a sweep.
func (v *volume) wantBounded(t *testing.T, state server.State) {
	t.Helper()
	if jobs, runs := state.Size(); jobs > volumeKeep || runs > volumeKeep+volumeNodes {
		t.Errorf("%d jobs and %d runs in memory, want at most %d and one more for each node", jobs, runs, volumeKeep)
	}
	v.ahead.Add(int64(2 * time.Hour))
	if err := v.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	// There are two blobs, a set of exports and a record, for each stored job and for each job whose
	// events are still in the log (nine events per job). The other blobs are a segment for each snapshot,
	// and the code.
	if got, blobs := v.messages(t, "TUTTI_BLOBS"), 2*(volumeKeep+volumeEvery/9)+9*volumeJobs/volumeEvery+10; got > uint64(blobs) {
		t.Errorf("%d blobs are stored after a sweep, want at most %d", got, blobs)
	}
}
