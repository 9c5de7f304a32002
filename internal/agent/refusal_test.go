package agent_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `soon` makes an agent that gives up after two refusals of a result.
func soon(o *agent.Options) { o.Refusals = 2 }

// An error in the server prevents it from storing a result. The agent does not try for ever, but
// reports that the result is lost. The run counts as failed, and the node is not good. The next job
// runs.
func TestAResultThatTheServerCannotTakeIsGivenUp(t *testing.T) {
	for _, code := range []tutti.Code{tutti.CodeInternal, tutti.CodeConflict, tutti.CodeDamaged} {
		t.Run(string(code), func(t *testing.T) {
			l := newLab(t, applies)
			l.line.failing(func(op string, payload []byte) error {
				if op == wire.OpResult && bytes.Contains(payload, []byte(`"outcome":"changed"`)) {
					return tutti.Errorf(code, "a mistake of the server")
				}
				return nil
			})
			l.start(soon)
			got := l.end(l.job())
			if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || !strings.Contains(got.Message, "a mistake of the server") {
				t.Errorf("%+v, want a failure of the machinery that says why", got)
			}
			l.line.failing(nil)
			if again := l.end(l.job()); again.Outcome != tutti.Changed {
				t.Errorf("the next run: %+v", again)
			}
			l.kill()
			if refused := agent.Refused(l.runDir(got.Run)); !strings.Contains(refused, "a mistake of the server") {
				t.Errorf("kept as refused: %q", refused)
			}
			if _, err := os.Stat(filepath.Join(l.runDir(got.Run), "result.json")); err != nil {
				t.Error(err)
			}
		})
	}
}

// The server refuses even the report of the loss, and does not wait for the result. Then the agent
// gives up.
func TestAResultThatNobodyWaitsForKeepsNobodyWaiting(t *testing.T) {
	l := newLab(t, applies)
	l.line.failing(func(op string, payload []byte) error {
		if op == wire.OpResult {
			return tutti.Errorf(tutti.CodeInternal, "a mistake of the server")
		}
		return nil
	})
	l.start(soon)
	job := l.job()
	run := l.until(job, "run.gated").Body.(*tutti.RunGated).Run
	l.line.until(wire.OpResult, 1)
	l.kill()
	if err := l.fleet.Stop(); err != nil {
		t.Fatal(err)
	}
	seen := l.fleet.Everything()
	last := seen[len(seen)-1].Seq
	lost := tutti.Event{Seq: last + 1, At: time.Now(), By: "server", Body: &tutti.RunLost{Run: run, Reason: "silent"}}
	if _, err := l.fleet.Log.Append(t.Context(), last, []tutti.Event{lost}); err != nil {
		t.Fatal(err)
	}
	l.fleet = servertest.Resume(t, l.fleet.Log, l.fleet.Blobs)
	l.line.to(l.fleet)
	l.start(soon)
	var tries atomic.Int32
	l.line.failing(func(op string, payload []byte) error {
		if op != wire.OpResult || !bytes.Contains(payload, []byte(run)) {
			return nil
		}
		if tries.Add(1) > 5 {
			t.Error("it is tried again and again")
			return nil
		}
		return tutti.Errorf(tutti.CodeInternal, "a mistake of the server")
	})
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Errorf("the next run: %+v", got)
	}
	l.kill()
	if refused := agent.Refused(l.runDir(run)); refused == "" {
		t.Error("the result is not kept as refused")
	}
}

// If the server cannot store a part of a result, the agent sends the result without this part. A run
// without its record is not good, because nobody knows what the run has read.
func TestAPartThatTheServerCannotStoreIsLeftOut(t *testing.T) {
	for _, tc := range []struct {
		reason string
		large  string
		want   tutti.Outcome
	}{
		{"the report is for people", "report.json", tutti.Changed},
		{"the record is what the node is judged by", "record", tutti.Failed},
	} {
		t.Run(tc.large, func(t *testing.T) {
			l := newLab(t, func(p *puppet) tutti.Result {
				if tc.large == "record" {
					for i := range 400 {
						p.say(ask{"op": "value", "key": fmt.Sprintf("shared/%0480d", i)})
					}
				}
				out := applies(p)
				if tc.large != "record" {
					p.report(bytes.Repeat([]byte("x"), wire.MaxEnclosed+1))
				}
				return out
			})
			l.line.refuseWith(wire.OpBlobPut, tutti.Errorf(tutti.CodeInternal, "the store is broken"))
			l.start(soon)
			if got := l.end(l.job()); got.Outcome != tc.want {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
}

// A server that was set back asks again for results that it had before. The agent also
// reports the loss of a result again.
func TestALossIsToldAgain(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result {
		applies(p)
		return tutti.Result{Outcome: "splendid"} // an outcome that no server takes
	})
	l.start(soon)
	job := l.job()
	l.until(job, "run.gated")
	backup := l.fleet.Log.Prefix(math.MaxUint64)
	if got := l.end(job); got.Outcome != tutti.Failed {
		t.Fatalf("%+v", got)
	}
	l.line.settle()
	l.kill()
	if err := l.fleet.Stop(); err != nil {
		t.Fatal(err)
	}
	l.fleet = servertest.Resume(t, backup, l.fleet.Blobs, func(o *server.Options) { o.Epochs = restored(2) })
	l.line.to(l.fleet)
	l.start(soon)
	if got := l.end(job); got.Outcome != tutti.Failed || !strings.Contains(got.Message, `unknown outcome "splendid"`) {
		t.Errorf("told again: %+v", got)
	}
}
