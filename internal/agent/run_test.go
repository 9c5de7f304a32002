package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func TestARunFromItsClaimToItsResult(t *testing.T) {
	l := newLab(t, applies)
	l.start()
	job := l.job()
	got := l.end(job)
	if got.Outcome != tutti.Changed || got.Degraded || got.Overlapped || got.Record == "" {
		t.Errorf("result %+v", got)
	}
	if v := l.fleet.Job(job); v.Verdict != tutti.VerdictSucceeded || v.Runs != 1 {
		t.Errorf("job %+v", v)
	}
	if want, said := "code blobget hiera gate result", l.line.said(wire.OpClaim); said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	rec := l.record(got.Run)
	want := tutti.Inputs{Code: rec.Inputs.Code, Mode: tutti.ModeApply, Puppet: "8.10.0", Module: "1.0", Catalog: tutti.DigestOf([]byte("catalog"))}
	if diff := cmp.Diff(want, rec.Inputs); diff != "" || rec.Node != "db-01" || rec.Inputs.Code == "" {
		t.Errorf("record of %q: -want +got\n%s", rec.Node, diff)
	}
}

// TestTheGateHasWhatTheCatalogIs: the gate gets the digests of the catalog, and the
// versions of Puppet and of the module.
func TestTheGateHasWhatTheCatalogIs(t *testing.T) {
	digest := func(of string) tutti.Digest { return tutti.DigestOf([]byte(of)) }
	l := newLab(t, func(p *puppet) tutti.Result {
		r := p.say(ask{"op": "gate", "facts_digest": digest("facts"), "values": []string{"db/x"}, "catalog": ask{
			"digest": digest("catalog"), "sources": digest("sources"), "lib": digest("lib"), "deferred": true, "resources": 3}})
		if r.Verdict != tutti.GateGo {
			t.Errorf("gate %+v", r)
		}
		return changed()
	})
	l.start()
	rec := l.record(l.end(l.job()).Run)
	var got wire.Gate
	if err := json.Unmarshal(l.line.payload(wire.OpGate), &got); err != nil {
		t.Fatal(err)
	}
	want := tutti.CatalogReport{
		Catalog: digest("catalog"), Sources: digest("sources"), Lib: digest("lib"), Facts: digest("facts"),
		Puppet: "8.10.0", Module: "1.0", Deferred: true, Values: []string{"db/x"},
	}
	if diff := cmp.Diff(want, got.CatalogReport); diff != "" {
		t.Errorf("gate -want +got\n%s", diff)
	}
	if rec.Inputs.Sources != want.Sources || rec.Inputs.Lib != want.Lib {
		t.Errorf("inputs of the record %+v", rec.Inputs)
	}
}

// TestTheGateDoesNotKnowWhatNobodyCouldRead: null in place of a digest means that the
// digest is unknown. An unknown digest is not an error.
func TestTheGateDoesNotKnowWhatNobodyCouldRead(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result {
		if r := p.say(ask{"op": "gate", "catalog": ask{"digest": tutti.DigestOf(nil), "sources": nil, "lib": nil}}); r.Verdict != tutti.GateGo {
			t.Errorf("gate %+v", r)
		}
		return changed()
	})
	l.start()
	l.end(l.job())
	if raw := l.line.payload(wire.OpGate); len(raw) == 0 || bytes.Contains(raw, []byte(`"sources"`)) || bytes.Contains(raw, []byte(`"lib"`)) {
		t.Errorf("sent %s, want neither sources nor lib", raw)
	}
}

// TestKilledAnywhereARunHappensOnce kills the agent at every message to the server. For
// each message, the test kills the agent twice: before the server gets the message, and
// before the agent gets the answer.
func TestKilledAnywhereARunHappensOnce(t *testing.T) {
	for _, op := range []string{wire.OpClaim, wire.OpCode, wire.OpBlobGet, wire.OpHiera, wire.OpGate, wire.OpPublish, wire.OpBlobPut, wire.OpResult} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s answered=%t", op, answered), func(t *testing.T) {
				large := bytes.Repeat([]byte("x"), wire.MaxEnclosed+1) // the file is too large to be enclosed in the result
				l := newLab(t, func(p *puppet) tutti.Result {
					out := applies(p)
					if r := p.say(ask{"op": "publish", "key": "db/x", "value": 1}); !r.OK {
						t.Errorf("publish: %s", r.Error)
					}
					p.report(large)
					return out
				})
				job := l.job()
				stop := l.line.stopAt(op, answered)
				l.start()
				<-stop.reached
				l.start()
				got := l.end(job)
				if got.Outcome != tutti.Changed || l.ruby.started() != 1 {
					t.Errorf("result %+v after %d starts, want one", got, l.ruby.started())
				}
				if report, err := l.fleet.Blobs.Get(t.Context(), got.Report); err != nil || !bytes.Equal(report, large) {
					t.Errorf("the report has %d bytes, %v; want %d", len(report), err, len(large))
				}
				if rec := l.record(got.Run); rec.Published["db/x"] == "" {
					t.Errorf("the record lacks what was published: %+v", rec)
				}
				values, err := l.fleet.ListValues(servertest.Operator(), "db/x")
				if err != nil || len(values) != 1 {
					t.Errorf("values %v, %v, want db/x", values, err)
				}
			})
		}
	}
}

func TestAnAgentFollowsARunThatGoesOn(t *testing.T) {
	starts, release := make(chan *puppet, 1), make(chan struct{})
	l := newLab(t, func(p *puppet) tutti.Result {
		starts <- p
		<-release
		return applies(p)
	})
	l.start()
	job := l.job()
	p := <-starts
	for range 3 {
		l.start()
	}
	close(release)
	if got := l.end(job); got.Run != p.spec.Order.Run || got.Outcome != tutti.Changed || l.ruby.started() != 1 {
		t.Errorf("result %+v of %d starts, want one good run %s", got, l.ruby.started(), p.spec.Order.Run)
	}
}

func TestARunWhoseProcessIsGoneIsInterrupted(t *testing.T) {
	starts := make(chan *puppet, 1)
	l := newLab(t, func(p *puppet) tutti.Result { starts <- p; <-p.killed; return tutti.Result{} })
	l.start()
	job := l.job()
	p := <-starts
	l.kill()
	p.once.Do(func() { close(p.killed) }) // end the process as if the machine had been switched off
	<-p.gone
	l.start()
	if got := l.end(job); got.Outcome != tutti.Interrupted || l.ruby.started() != 1 {
		t.Errorf("result %+v after %d starts, want interrupted and no second start", got, l.ruby.started())
	}
}

func TestWhatCannotStart(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(l *lab)
		want   tutti.Reason
		says   string
	}{
		"no Puppet": {"the runner finds none", func(l *lab) {
			l.ruby.startErr = tutti.Errorf(tutti.CodeNotFound, "no Puppet on this node")
		}, tutti.BecauseMachinery, "no Puppet on this node"},
		"no code": {"the server has lost it", func(l *lab) {
			l.line.refuseWith(wire.OpBlobGet, tutti.Errorf(tutti.CodeNotFound, "the file is gone"))
		}, tutti.BecauseMachinery, "the file is gone"},
		"forged": {"another key has signed it", func(l *lab) {
			l.line.alter = func(op string, reply []byte) []byte {
				if op != wire.OpCode {
					return reply
				}
				return []byte(strings.Replace(string(reply), `"signature":"`, `"signature":"AAAA`, 1))
			}
		}, tutti.BecauseRefused, "not signed by the operator"},
		"another manifest": {"its digest is not the order's", func(l *lab) {
			l.line.alter = func(op string, reply []byte) []byte {
				if op != wire.OpCode {
					return reply
				}
				return []byte(strings.Replace(string(reply), `"manifest":"`, `"manifest":"AAAA`, 1))
			}
		}, tutti.BecauseRefused, "the manifest has the digest"},
		"altered file": {"its digest is not the manifest's", func(l *lab) {
			l.line.alter = func(op string, reply []byte) []byte {
				if op != wire.OpBlobGet {
					return reply
				}
				return append(reply, '#')
			}
		}, tutti.BecauseRefused, "came with the digest"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			tc.before(l)
			l.start()
			job := l.job()
			got := l.end(job)
			if got.Outcome != tutti.Failed || got.Reason != tc.want || !strings.Contains(got.Message, tc.says) {
				t.Errorf("%s: result %+v, want failed:%s and %q", tc.reason, got, tc.want, tc.says)
			}
			if l.ruby.started() != 0 {
				t.Errorf("%s: Puppet was started", tc.reason)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Run("while it applies", func(t *testing.T) {
		applying := make(chan struct{})
		l := newLab(t, func(p *puppet) tutti.Result {
			applies(p)
			close(applying)
			<-p.killed
			return tutti.Result{}
		})
		l.start()
		job := l.job()
		<-applying
		l.cancelNow(job)
		if got := l.end(job); got.Outcome != tutti.Interrupted || !strings.Contains(got.Message, "cancelled") {
			t.Errorf("result %+v, want interrupted because cancelled", got)
		}
	})
	t.Run("while its code is fetched", func(t *testing.T) {
		l := newLab(t, applies)
		stop := l.line.stopAt(wire.OpBlobGet, false)
		l.start()
		job := l.job()
		<-stop.reached
		l.cancelNow(job)
		if got := l.end(job); got.Outcome != tutti.Interrupted || l.ruby.started() != 0 {
			t.Errorf("result %+v after %d starts, want interrupted before the start", got, l.ruby.started())
		}
	})
}

func (l *lab) cancelNow(job tutti.JobID) {
	l.t.Helper()
	if err := l.fleet.CancelJob(servertest.Operator(), api.CancelJob{Job: job, Now: true}); err != nil {
		l.t.Fatal(err)
	}
}

func TestTheStepsTimeoutEndsARun(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result { <-p.killed; return tutti.Result{} })
	if _, err := l.fleet.SetFleet(servertest.Operator(), api.FleetSource{
		File: "tutti.yaml", Source: []byte(strings.Replace(onePlan, "{run: db}", "{run: db, timeout: 50ms}", 1)),
	}); err != nil {
		t.Fatal(err)
	}
	l.start()
	if got := l.end(l.job()); got.Outcome != tutti.Failed || got.Reason != tutti.BecauseTimeout {
		t.Errorf("result %+v, want failed:timeout", got)
	}
}

func TestAPuppetWithoutALockIsNoted(t *testing.T) {
	l := newLab(t, applies)
	l.ruby.strangers = []string{"puppet apply /root/x.pp"}
	l.start()
	if got := l.end(l.job()); got.Outcome != tutti.Changed || !got.Overlapped {
		t.Errorf("result %+v, want overlapped", got)
	}
}

func TestAnOrderOfAnotherNodeIsRefused(t *testing.T) {
	l := newLab(t, applies)
	l.start(func(o *agent.Options) { o.Node = "db-02" })
	l.job()
	l.line.until(wire.OpClaim, 2)
	if l.ruby.started() != 0 {
		t.Error("it ran what another node is to run")
	}
}

// If the agent cannot read the files of a run, this run ends, and other runs continue.

func TestADamagedRunThatNobodyWaitsForStopsNothing(t *testing.T) {
	l := newLab(t, applies)
	l.put("00000000-0000-4000-8000-aaaaaaaaaaaa", markerFile, []byte("{"))
	l.put("00000000-0000-4000-8000-bbbbbbbbbbbb", "result.json", []byte("{"))
	if err := os.WriteFile(l.dir+"/runs/a file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
}
