package server_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// Most of what a large fleet says is that it is there; that must not wait for
// disks, and disks must not make it look silent.
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
		synctest.Wait() // its append goes on
		for _, c := range []struct {
			op string
			in any
		}{{tutti.OpBeat, tutti.Beat{Version: "1"}}, {tutti.OpLive, []tutti.Live{{Run: run, Phase: "apply"}}}} {
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
	if err := f.Node("db-01").Call(tutti.OpBeat, tutti.Beat{Version: "1.2"}, nil); err != nil {
		t.Fatal(err)
	}
	nodes, err := f.ListNodes(servertest.Operator())
	if err != nil || len(nodes) != 3 || nodes[0].Version != "1.2" || !nodes[0].Connected || nodes[1].Connected {
		t.Errorf("nodes %+v, %v; want db-01 connected with its version, and no other", nodes, err)
	}
}
