package agent_test

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// inRun executes a run in which f is the Puppet, and returns the result.
func (l *lab) inRun(f func(p *puppet)) tutti.Result {
	l.t.Helper()
	l.ruby.mu.Lock()
	l.ruby.script = func(p *puppet) tutti.Result {
		f(p)
		return applies(p)
	}
	l.ruby.mu.Unlock()
	return l.end(l.job())
}

func started(t *testing.T, change ...func(*agent.Options)) *lab {
	t.Helper()
	l := newLab(t, nil)
	l.start(change...)
	return l
}

func (l *lab) set(key, value string) {
	l.t.Helper()
	if err := l.fleet.SetValue(servertest.Operator(), key, json.RawMessage(value)); err != nil {
		l.t.Fatal(err)
	}
}

func TestWhoMaySpeakOnTheSocket(t *testing.T) {
	change := func(key string, value any) func(ask) ask {
		return func(a ask) ask { a[key] = value; return a }
	}
	cases := map[string]struct {
		first func(ask) ask
		code  tutti.Code
		says  string
	}{
		"the launcher":     {change("pid", 2), "", ""},
		"another run":      {change("run", "00000000-0000-4000-8000-ffffffffffff"), tutti.CodeRefused, "this is the socket of run"},
		"another node":     {change("certname", "db-01.example.net"), tutti.CodeRefused, "this is node db-01"},
		"another protocol": {change("protocol", 2), tutti.CodeRefused, "protocol 2"},
		"no greeting":      {func(ask) ask { return ask{"op": "hiera"} }, tutti.CodeRefused, "hiera before hello"},
		"no such op":       {change("op", "dance"), tutti.CodeRefused, "dance before hello"},
		"wrong types":      {change("protocol", "one"), tutti.CodeInvalid, "request"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			started(t).inRun(func(p *puppet) {
				conn := p.dial()
				defer conn.Close()
				got := exchange(conn, bufio.NewScanner(conn), tc.first(p.hello()))
				if got.Code != tc.code || !strings.Contains(got.Error, tc.says) {
					t.Errorf("answer %+v, want code %q and %q", got, tc.code, tc.says)
				}
				if tc.code == "" && got.Mode != tutti.ModeApply {
					t.Errorf("mode %q", got.Mode)
				}
			})
		})
	}
}

func TestTheSocketIsForRootAlone(t *testing.T) {
	started(t).inRun(func(p *puppet) {
		info, err := os.Stat(p.spec.Socket)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("socket %v, %v, want mode 0600", info.Mode(), err)
		}
		if r := p.say(ask{"op": "dance"}); r.Code != tutti.CodeInvalid {
			t.Errorf("an op that is none: %+v", r)
		}
	})
}

func TestWithinARunAQuestionHasOneAnswer(t *testing.T) {
	l := started(t)
	l.set("shared/x", "1")
	l.set("shared/hiera/port", "1")
	asks := func(p *puppet) []string {
		v, h, c := p.say(ask{"op": "value", "key": "shared/x"}), p.say(ask{"op": "hiera"}), p.say(ask{"op": "collect", "type": "Database", "filter": nil})
		return []string{string(v.Value), string(h.Data["port"]), string(rune('0' + len(c.Exports)))}
	}
	got := l.inRun(func(p *puppet) {
		if p.spec.Order.Attempt > 1 {
			return
		}
		first := asks(p)
		l.set("shared/x", "2")
		l.set("shared/hiera/port", "2")
		if diff := cmp.Diff(first, asks(p)); diff != "" || !cmp.Equal(first, []string{"1", "1", "0"}) {
			t.Errorf("asked again, -first +again\n%s", diff)
		}
		l.start() // another agent
		if diff := cmp.Diff(first, asks(p)); diff != "" {
			t.Errorf("asked another agent, -first +again\n%s", diff)
		}
	})
	if got.Outcome != tutti.Changed || l.ruby.started() != 2 {
		t.Fatalf("result %+v after %d runs: what the first one read has changed, its gate must stop it", got, l.ruby.started())
	}
}

func TestTheRecordHasWhatWasRead(t *testing.T) {
	l := started(t)
	l.set("shared/x", "1")
	l.set("shared/hiera/port", "2")
	l.ruby.mu.Lock()
	l.ruby.script = func(p *puppet) tutti.Result {
		p.say(ask{"op": "hiera"})
		p.say(ask{"op": "value", "key": "shared/x", "at": ask{"file": "site.pp", "line": 3}})
		p.say(ask{"op": "value", "key": "shared/absent"})
		p.say(ask{"op": "gate", "keys": []ask{{"key": "port", "found": true}, {"key": "other"}},
			"exports": []ask{{"type": "Database", "title": "main"}}, "facts_digest": tutti.DigestOf([]byte("facts"))})
		p.say(ask{"op": "publish", "key": "db/x", "value": "up"})
		return changed()
	}
	l.ruby.mu.Unlock()
	rec := l.record(l.end(l.job()).Run)
	type read struct {
		Query tutti.Query
		Found bool
		Line  int
	}
	var reads []read
	for _, r := range rec.Reads {
		if r.Found == (r.Digest == "") || r.Seq == 0 {
			t.Errorf("read %+v", r)
		}
		reads = append(reads, read{r.Query, r.Found, r.At.Line})
	}
	want := []read{
		{tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}, true, 3},
		{tutti.Query{Kind: tutti.QueryValue, Key: "shared/absent"}, false, 0},
		{tutti.Query{Kind: tutti.QueryHiera, Key: "port"}, true, 0},
	}
	if diff := cmp.Diff(want, reads); diff != "" {
		t.Errorf("reads -want +got\n%s", diff)
	}
	if len(rec.Keys) != 2 || !cmp.Equal(rec.Exports, []string{"Database[main]"}) || len(rec.Published) != 1 || rec.Inputs.Facts == "" {
		t.Errorf("record %+v", rec)
	}
}

// TestARunThatDidNotCompileHasItsRecord: a run that did not compile has a record. The record of a
// run also contains the questions after its gate.
func TestARunThatDidNotCompileHasItsRecord(t *testing.T) {
	facts := tutti.DigestOf([]byte("facts"))
	keys := []ask{{"key": "other"}, {"key": "port", "found": true, "at": ask{"resource": "Class[Db]", "line": 3}}}
	handOver := ask{"op": "asked", "keys": keys, "facts_digest": facts}
	for _, tc := range []struct {
		reason string
		gate   bool
		end    tutti.Result
	}{
		{"failed", false, tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}},
		{"waits", false, tutti.Result{Outcome: tutti.Waiting}},
		{"resolved more while applying", true, changed()},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := started(t)
			l.set("shared/hiera/port", "2")
			l.ruby.does(func(p *puppet) tutti.Result {
				p.say(ask{"op": "hiera"})
				if tc.gate {
					p.say(ask{"op": "gate", "keys": keys[:1], "facts_digest": facts})
				}
				p.say(ask{"op": "value", "key": "shared/absent"})
				for range 2 { // the agent accepts every request twice
					if r := p.say(handOver); !r.OK {
						t.Errorf("asked: %+v", r)
					}
				}
				return tc.end
			})
			got := l.end(l.job())
			if got.AskedMore != tc.gate {
				t.Errorf("asked more behind its gate: %t, want %t", got.AskedMore, tc.gate)
			}
			rec := l.record(got.Run)
			var reads []string
			for _, r := range rec.Reads {
				reads = append(reads, r.Query.String())
			}
			if diff := cmp.Diff([]string{`value "shared/absent"`, `hiera "port"`}, reads); diff != "" {
				t.Errorf("reads -want +got\n%s", diff)
			}
			want := []tutti.KeyRead{{Key: "other"}, {Key: "port", Found: true, At: tutti.Place{Resource: "Class[Db]", Line: 3}}}
			if diff := cmp.Diff(want, rec.Keys); diff != "" || rec.Inputs.Facts != facts {
				t.Errorf("facts %q, keys -want +got\n%s", rec.Inputs.Facts, diff)
			}
		})
	}
}

func TestWithoutAServerTheLastKnownAnswersCount(t *testing.T) {
	l := started(t)
	l.set("shared/x", "1")
	l.set("shared/hiera/port", "1")
	l.inRun(func(p *puppet) { p.say(ask{"op": "value", "key": "shared/x"}) })
	l.start(impatient)
	got := l.inRun(func(p *puppet) {
		l.line.sever()
		v, h := p.say(ask{"op": "value", "key": "shared/x"}), p.say(ask{"op": "hiera"})
		if string(v.Value) != "1" || !v.Degraded || string(h.Data["port"]) != "1" || !h.Degraded {
			t.Errorf("value %+v, hiera %+v: want the last known ones, degraded", v, h)
		}
		l.line.mend()
	})
	if got.Outcome != tutti.Changed || !got.Degraded {
		t.Errorf("result %+v, want degraded", got)
	}
}

// TestAServerThatIsAwayRemovesNoMember: while the server is away, a collect returns the
// last known members. A collect without the server never returns an empty list.
func TestAServerThatIsAwayRemovesNoMember(t *testing.T) {
	l := started(t)
	member := tutti.Export{Type: "Database", Title: "main", Node: "db-02"}
	l.line.mu.Lock()
	l.line.alter = func(op string, reply []byte) []byte {
		var answer wire.Answer
		if op != wire.OpAsk || json.Unmarshal(reply, &answer) != nil {
			return reply
		}
		answer.Exports = []tutti.Export{member}
		raw, err := json.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		return raw
	}
	l.line.mu.Unlock()
	collects := func(p *puppet) reply { return p.say(ask{"op": "collect", "type": "Database", "filter": nil}) }
	l.inRun(func(p *puppet) {
		if r := collects(p); len(r.Exports) != 1 || r.Degraded {
			t.Errorf("collected %+v", r)
		}
	})
	l.start(impatient)
	got := l.inRun(func(p *puppet) {
		l.line.sever()
		r := collects(p)
		if diff := cmp.Diff([]tutti.Export{member}, r.Exports); diff != "" || !r.Degraded {
			t.Errorf("collected while the server is away: degraded %t, -want +got\n%s", r.Degraded, diff)
		}
		l.line.mend()
	})
	if !got.Degraded {
		t.Errorf("result %+v, want degraded", got)
	}
}

func TestNoAnswerIsNoEmptyAnswer(t *testing.T) {
	cases := map[string]struct {
		in    ask
		names string
		waits tutti.Wait
	}{
		"value": {ask{"op": "value", "key": "shared/x", "at": ask{"file": "site.pp", "line": 3}}, `value "shared/x"`,
			tutti.Wait{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}, At: tutti.Place{File: "site.pp", Line: 3}}},
		"hiera": {ask{"op": "hiera"}, "the hiera level", tutti.Wait{Query: tutti.Query{Kind: tutti.QueryHiera}}},
		"collect": {ask{"op": "collect", "type": "Database"}, "Database <<| |>>",
			tutti.Wait{Query: tutti.Query{Kind: tutti.QueryCollect, Type: "Database"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := started(t, impatient)
			l.ruby.mu.Lock()
			l.ruby.script = func(p *puppet) tutti.Result {
				l.line.sever()
				if r := p.say(tc.in); r.OK || r.Code != tutti.CodeUnavailable {
					t.Errorf("answer %+v, want none", r)
				}
				l.line.mend()
				return tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}
			}
			l.ruby.mu.Unlock()
			got := l.end(l.job())
			if got.Outcome != tutti.Waiting || !strings.Contains(got.Message, tc.names) {
				t.Errorf("result %+v, want waiting for %s", got, tc.names)
			}
			if diff := cmp.Diff([]tutti.Wait{tc.waits}, got.Waits); diff != "" {
				t.Errorf("waits -want +got\n%s", diff)
			}
		})
	}
}

func TestKnownAnswersThatAreDamagedAreNone(t *testing.T) {
	l := started(t)
	l.set("shared/x", "1")
	l.inRun(func(p *puppet) { p.say(ask{"op": "value", "key": "shared/x"}) })
	files, err := filepath.Glob(filepath.Join(l.dir, "known", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("known answers %v, %v", files, err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte(`{"found`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.start(impatient)
	l.inRun(func(p *puppet) {
		l.line.sever()
		if r := p.say(ask{"op": "value", "key": "shared/x"}); r.Code != tutti.CodeUnavailable {
			t.Errorf("answer %+v, want none", r)
		}
		l.line.mend()
	})
}

func TestARunInsistsOnAnAnswerWhileTheServerRestarts(t *testing.T) {
	l := started(t)
	l.set("shared/x", "1")
	got := l.inRun(func(p *puppet) {
		l.line.sever()
		asked := l.line.count(wire.OpAsk)
		mended := make(chan struct{})
		go func() {
			defer close(mended)
			l.line.until(wire.OpAsk, asked+1)
			l.line.mend()
		}()
		if v := p.say(ask{"op": "value", "key": "shared/x"}); string(v.Value) != "1" || v.Degraded {
			t.Errorf("answer %+v, want the server's", v)
		}
		<-mended
	})
	if got.Outcome != tutti.Changed || got.Degraded {
		t.Errorf("result %+v, want changed, not degraded", got)
	}
}

func TestTheGateWaitsForTheServer(t *testing.T) {
	l := started(t, impatient) // the server still answers the questions before the gate
	got := l.inRun(func(*puppet) {
		l.line.sever()
		asked := l.line.count(wire.OpGate)
		go func() {
			l.line.until(wire.OpGate, asked+1)
			l.line.mend()
		}()
	})
	if got.Outcome != tutti.Changed || l.line.count(wire.OpGate) < 2 {
		t.Errorf("result %+v after the gate was asked %d times", got, l.line.count(wire.OpGate))
	}
}

func TestAnEmptyAnswerAtTheGateIsNone(t *testing.T) {
	l := started(t)
	l.line.mu.Lock()
	l.line.alter = func(op string, reply []byte) []byte {
		if op == wire.OpGate {
			return []byte("{}")
		}
		return reply
	}
	l.line.mu.Unlock()
	l.ruby.mu.Lock()
	l.ruby.script = func(p *puppet) tutti.Result {
		if r := p.say(ask{"op": "gate"}); r.OK || r.Code != tutti.CodeInternal {
			t.Errorf("the gate said %+v, want an error", r)
		}
		return applies(p)
	}
	l.ruby.mu.Unlock()
	l.end(l.fleet.Start("deploy", tutti.ModeApply))
}

func TestANoopRunPublishesNothing(t *testing.T) {
	l := started(t)
	l.ruby.mu.Lock()
	l.ruby.script = func(p *puppet) tutti.Result {
		if r := p.say(ask{"op": "publish", "key": "db/x", "value": 1}); r.Code != tutti.CodeRefused {
			t.Errorf("publish: %+v, want refused", r)
		}
		return applies(p)
	}
	l.ruby.mu.Unlock()
	l.end(l.fleet.Start("deploy", tutti.ModeNoop))
}

// The launcher's connection to the socket may end at any point. A line that is too long or invalid
// ends only its connection.
func TestJunkEndsItsConnectionOnly(t *testing.T) {
	started(t).inRun(func(p *puppet) {
		for _, junk := range []string{"\x00\xff\n", strings.Repeat("a", 70_000), "{}\n{}\n", ""} {
			conn := p.dial()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = conn.Write([]byte(junk))
			_ = conn.(*net.UnixConn).CloseWrite()
			buf := make([]byte, 1<<16)
			for {
				if _, err := conn.Read(buf); err != nil {
					break
				}
			}
			conn.Close()
		}
		if r := p.say(ask{"op": "hiera"}); !r.OK {
			t.Errorf("after that: %+v", r)
		}
	})
}
