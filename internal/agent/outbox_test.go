package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func (l *lab) value(key string) string {
	l.t.Helper()
	values, err := l.fleet.ListValues(servertest.Operator(), key)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, v := range values {
		if v.Key == key {
			return string(v.Value)
		}
	}
	return ""
}

func TestWhatWasPublishedWhileTheServerWasAwayComesBeforeTheResult(t *testing.T) {
	var l *lab
	l = newLab(t, func(p *puppet) tutti.Result {
		out := applies(p)
		l.line.sever()
		for _, v := range []int{1, 2} { // in this order
			if r := p.say(ask{"op": "publish", "key": "db/x", "value": v}); !r.OK {
				t.Errorf("publish: %s", r.Error)
			}
		}
		p.say(ask{"op": "publish", "key": "db/gone", "value": 1})
		p.say(ask{"op": "withdraw", "key": "db/gone"})
		if r := p.say(ask{"op": "published", "key": "db/x"}); !r.OK || r.Found {
			t.Errorf("what is published already, without a server: %+v", r)
		}
		p.report([]byte(`{"a":1}`))
		return out
	})
	l.start()
	job := l.job()
	l.until(job, "run.gated")
	l.line.until(wire.OpPublish, 5) // Puppet publishes four times, then the outbox tries once
	if v := l.value("db/x"); v != "" {
		t.Fatalf("db/x is %s while the line is cut", v)
	}
	l.line.mu.Lock()
	l.line.ops = nil
	l.line.mu.Unlock()
	l.line.mend()
	got := l.end(job)
	if got.Outcome != tutti.Changed || l.value("db/x") != "2" || l.value("db/gone") != "" {
		t.Errorf("result %+v, db/x %q, db/gone %q", got, l.value("db/x"), l.value("db/gone"))
	}
	if said := l.line.said(wire.OpClaim); said != "publish result" {
		t.Errorf("said %q, want what was published, then the result", said)
	}
	if report, err := l.fleet.Blobs.Get(t.Context(), got.Report); err != nil || string(report) != `{"a":1}` {
		t.Errorf("report %q, %v", report, err)
	}
	want := map[string]tutti.Digest{"db/x": tutti.DigestOf([]byte("2")), "db/gone": ""}
	if diff := cmp.Diff(want, l.record(got.Run).Published); diff != "" {
		t.Errorf("record: -want +got\n%s", diff)
	}
}

func TestWhatIsPublishedLaterCountsAlsoIfTheServerWasAwayBefore(t *testing.T) {
	var l *lab
	l = newLab(t, func(p *puppet) tutti.Result {
		out := applies(p)
		l.line.sever()
		p.say(ask{"op": "publish", "key": "db/x", "value": 1})
		l.line.mend()
		p.say(ask{"op": "publish", "key": "db/x", "value": 2})
		return out
	})
	l.start()
	if l.end(l.job()); l.value("db/x") != "2" {
		t.Errorf("db/x is %s, want 2: it was published last", l.value("db/x"))
	}
}

// If the server refuses a result, the result stays on the node, and the job gets a
// failure.
func TestARefusedResultIsKept(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result {
		applies(p)
		return tutti.Result{Outcome: "splendid"} // no server takes this outcome
	})
	l.start()
	got := l.end(l.job())
	if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || !strings.Contains(got.Message, `unknown outcome "splendid"`) {
		t.Errorf("result %+v, want a failure of the machinery that says why", got)
	}
	if n := l.line.count(wire.OpResult); n != 2 {
		t.Errorf("%d results were sent, want the refused one and the one that says so", n)
	}
	l.line.settle()
	for _, name := range []string{"result.json", "sent"} {
		if _, err := os.Stat(filepath.Join(l.runDir(got.Run), name)); err != nil {
			t.Error(err)
		}
	}
}

func TestABlobThatTheServerRefusesIsLeftOut(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result {
		p.report(bytes.Repeat([]byte("x"), wire.MaxEnclosed+1))
		return applies(p)
	})
	l.line.refuseWith(wire.OpBlobPut, tutti.Errorf(tutti.CodeInvalid, "too large"))
	l.start()
	if got := l.end(l.job()); got.Outcome != tutti.Changed || got.Report != "" || got.Record == "" {
		t.Errorf("result %+v, want the outcome with its record and without the report", got)
	}
}

// One message contains the result and its small parts. Four messages, each with an fsync, would
// take four times as long.
func TestWhatIsSmallGoesAlongWithTheResult(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result {
		p.report(bytes.Repeat([]byte("x"), wire.MaxEnclosed/2))
		return applies(p)
	})
	l.start()
	got := l.end(l.job())
	if report, err := l.fleet.Blobs.Get(t.Context(), got.Report); err != nil || len(report) != wire.MaxEnclosed/2 {
		t.Errorf("the report has %d bytes, %v; want %d", len(report), err, wire.MaxEnclosed/2)
	}
	if rec := l.record(got.Run); rec.Run != got.Run {
		t.Errorf("record of run %q, want %s", rec.Run, got.Run)
	}
	if n := l.line.count(wire.OpBlobPut); n != 0 {
		t.Errorf("%d blobs went by themselves, want none", n)
	}
}

func TestADiskThatTakesNothingIsAFailureAtOnce(t *testing.T) {
	l := newLab(t, applies)
	job := l.job()
	order := l.node.MustClaim()
	if err := os.MkdirAll(filepath.Join(l.dir, "runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A file in place of the run's directory makes every write to this directory fail.
	if err := os.WriteFile(l.runDir(order.Run), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	if got := l.end(job); got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || got.Message == "" || l.ruby.started() != 0 {
		t.Errorf("result %+v after %d starts", got, l.ruby.started())
	}
}

func TestOldRunsAreRemoved(t *testing.T) {
	l := newLab(t, applies)
	l.start(func(o *agent.Options) { o.KeepRuns = 2 })
	var last tutti.RunID
	for range 4 {
		last = l.end(l.job()).Run
	}
	l.line.settle()
	dirs, err := os.ReadDir(filepath.Join(l.dir, "runs"))
	if err != nil || len(dirs) > 3 {
		t.Errorf("%d directories, %v, want the latest two (and one on its way)", len(dirs), err)
	}
	if _, err := os.Stat(l.runDir(last)); err != nil {
		t.Errorf("the latest run: %v", err)
	}
}

func TestAServerThatIsAwayIsAskedAgain(t *testing.T) {
	l := newLab(t, applies)
	l.line.sever()
	l.start()
	job := l.job() // the doorbell is lost
	l.line.until(wire.OpHello, 1)
	l.line.mend()
	if got := l.end(job); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
}

// If the server comes back and refuses a value, the value is stored nowhere. The resource that
// published it counts as failed, and so does the run.
func TestAPublishedValueThatIsNotTaken(t *testing.T) {
	var l *lab
	l = newLab(t, func(p *puppet) tutti.Result {
		out := applies(p)
		l.line.sever()
		for _, key := range []string{"db/x", "db/full"} {
			if r := p.say(ask{"op": "publish", "key": key, "value": 1}); !r.OK {
				t.Errorf("publish: %s", r.Error)
			}
		}
		return out
	})
	l.line.failing(func(op string, payload []byte) error {
		if op == wire.OpPublish && bytes.Contains(payload, []byte(`"db/full"`)) {
			return tutti.Errorf(tutti.CodeRefused, "too many values")
		}
		return nil
	})
	l.start()
	job := l.job()
	l.until(job, "run.gated")
	l.line.until(wire.OpPublish, 3)
	l.line.mend()
	got := l.end(job)
	if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseResources || got.Counts.Failed != 1 {
		t.Errorf("result %+v, want a resource that failed", got)
	}
	if len(got.Failures) != 1 || got.Failures[0].Resource != "Tutti_value[db/full]" || !strings.Contains(got.Failures[0].Message, "too many values") {
		t.Errorf("failures %+v", got.Failures)
	}
	if l.value("db/x") != "1" {
		t.Errorf("db/x is %q", l.value("db/x"))
	}
	if diff := cmp.Diff(map[string]tutti.Digest{"db/x": tutti.DigestOf([]byte("1"))}, l.record(got.Run).Published); diff != "" {
		t.Errorf("record: -want +got\n%s", diff)
	}
}

// The answer to a result gets lost, so the agent sends the result again. For the server the run has
// ended, so the server takes no more values from the run. The refused values do not change what the
// agent reports about the run.
func TestAResultThatIsSentTwiceSaysTheSame(t *testing.T) {
	for _, tc := range []struct {
		reason string
		refuse error // the server's error for the value db/y; nil if the server takes it
		want   tutti.Outcome
	}{
		{"all was taken", nil, tutti.Changed},
		{"a value was not, at first", tutti.Errorf(tutti.CodeRefused, "too many values"), tutti.Failed},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var l *lab
			l = newLab(t, func(p *puppet) tutti.Result {
				out := applies(p)
				l.line.sever()
				for _, key := range []string{"db/x", "db/y"} {
					p.say(ask{"op": "publish", "key": key, "value": 1})
				}
				return out
			})
			l.line.failing(func(op string, payload []byte) error {
				if op == wire.OpPublish && bytes.Contains(payload, []byte(`"db/y"`)) {
					return tc.refuse
				}
				return nil
			})
			l.start()
			job := l.job()
			l.until(job, "run.gated")
			l.line.until(wire.OpPublish, 3)
			lost := l.line.stopAt(wire.OpResult, true)
			l.line.mend()
			<-lost.reached
			l.kill()
			l.line.failing(nil)
			l.start()
			l.line.until(wire.OpResult, 2)
			l.line.settle()
			sent := l.line.payloads(wire.OpResult)
			if !bytes.Equal(sent[0], sent[len(sent)-1]) {
				t.Errorf("sent at first:\n%s\nand then:\n%s", sent[0], sent[len(sent)-1])
			}
			if got := l.end(job); got.Outcome != tc.want {
				t.Errorf("result %+v, want %s", got, tc.want)
			}
			for _, e := range l.fleet.Events() {
				if e.Body.Kind() == "node.setback" {
					t.Errorf("the node was set back: %+v", e.Body)
				}
			}
		})
	}
}

// If a published value of a run is lost, the agent reports this once, however often it
// sends the result.
func TestADamagedResultThatIsSentTwiceSaysTheSame(t *testing.T) {
	var l *lab
	l = newLab(t, func(p *puppet) tutti.Result {
		out := applies(p)
		l.line.sever()
		p.say(ask{"op": "publish", "key": "db/x", "value": 1})
		return out
	})
	l.start()
	job := l.job()
	run := l.until(job, "run.claimed").Body.(*tutti.RunClaimed).Run
	l.line.until(wire.OpPublish, 2) // the first message is from Puppet, the second from the outbox
	l.kill()
	if err := os.WriteFile(filepath.Join(l.runDir(run), "publish.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.line.refuseWith(wire.OpResult, tutti.Errorf(tutti.CodeUnavailable, "away"))
	l.line.mend()
	l.start()
	l.line.until(wire.OpResult, 3)
	l.line.refuseWith(wire.OpResult, nil)
	got := l.end(job)
	if sent := l.line.payloads(wire.OpResult); !bytes.Equal(sent[0], sent[len(sent)-1]) {
		t.Errorf("sent at first:\n%s\nand then:\n%s", sent[0], sent[len(sent)-1])
	}
	if got.Outcome != tutti.Failed || !strings.Contains(got.Message, "publish.jsonl") {
		t.Errorf("result %+v", got)
	}
}
