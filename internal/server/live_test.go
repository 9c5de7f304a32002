package server_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// Most messages of a large fleet are beats. Beats must not wait for disks, and slow disks
// must not make nodes look silent.
func TestWhatIsNotKeptDoesNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &heldLog{Log: memory.NewLog(), pass: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) { o.Log = log })
		db := f.Join("db-01")
		f.Push(twoSteps)
		f.Join("web-01")
		f.Join("web-02")
		f.Start("deploy", tutti.ModeApply)
		run := db.MustClaim().Run

		log.hold.Store(true)
		var asked sync.WaitGroup
		asked.Go(func() {
			if err := f.SetValue(servertest.Operator(), "shared/x", []byte("1")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the append is still waiting
		for _, c := range []struct {
			op string
			in any
		}{{wire.OpBeat, wire.Beat{Version: "1"}}, {wire.OpLive, []tutti.Live{{Run: run, Phase: "apply"}}}} {
			said := make(chan error, 1)
			asked.Go(func() { said <- db.Call(c.op, c.in, nil) })
			synctest.Wait()
			select {
			case err := <-said:
				if err != nil {
					t.Errorf("%s: %v", c.op, err)
				}
			default:
				t.Errorf("%s waits for the log", c.op)
			}
		}
		log.hold.Store(false)
		close(log.pass)
		asked.Wait()
	})
}

func TestAServerThatStartsKnowsItsNodes(t *testing.T) {
	f := newFixture(t).Restart()
	if err := f.Node("db-01").Call(wire.OpBeat, wire.Beat{Version: "1.2"}, nil); err != nil {
		t.Fatal(err)
	}
	nodes, err := f.ListNodes(servertest.Operator())
	if err != nil || len(nodes) != 3 || nodes[0].Version != "1.2" || !nodes[0].Connected || nodes[1].Connected {
		t.Errorf("nodes %+v, %v; want db-01 connected with its version, and no other", nodes, err)
	}
}

// TestAGoodbyeIsForPeople checks a node whose agent has announced its end. The server lists the node as stopped
// until the node sends another message. A goodbye is not a sign of life. So the server counts this node as not
// connected after the same time as a node that is silent without a goodbye.
func TestAGoodbyeIsForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		defer func() { _ = f.Stop() }()
		db := f.Join("db-01")
		at := time.Now()
		beat := func(stopping bool, at time.Time) {
			t.Helper()
			if err := db.Call(wire.OpBeat, wire.Beat{Version: "1", Stopping: stopping, At: at}, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, connected, stopped bool) {
			t.Helper()
			nodes, err := f.ListNodes(servertest.Operator())
			if err != nil || len(nodes) != 1 || nodes[0].Connected != connected || nodes[0].Stopped != stopped {
				t.Errorf("%s: %+v, %v; want connected %t, stopped %t", what, nodes, err, connected, stopped)
			}
		}
		beat(false, at)
		want("after a beat", true, false)
		time.Sleep(20 * time.Second)
		beat(true, at.Add(20*time.Second))
		want("after its goodbye", true, true)
		beat(false, at.Add(19*time.Second))
		want("after a beat that the goodbye has overtaken", true, true)
		time.Sleep(11 * time.Second)
		want("30 s after its last beat", false, true)
		if err := db.Hello(ticket("t1"), "boot"); err != nil {
			t.Fatal(err)
		}
		want("when it says hello", true, false)
		beat(false, at) // the clock of the node was set back
		want("after the next beat", true, false)
	})
}
