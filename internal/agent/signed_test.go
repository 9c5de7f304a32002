package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// site is the code of a fleet with one file.
func site(content string) map[string]string { return map[string]string{"manifests/site.pp": content} }

// The function `counted` signs code with a counter.
func counted(counter uint64) func(tutti.CodeManifest) tutti.SignedCode {
	return func(m tutti.CodeManifest) tutti.SignedCode { return servertest.SignAs(m, counter) }
}

// The method `given` makes the server send old code and statements with the next orders. The method
// simulates a server that an attacker controls, or whose state was set back.
func (l *lab) given(old tutti.SignedCode) {
	l.line.alter = func(op string, reply []byte) []byte {
		var out any
		switch op {
		case wire.OpClaim:
			var claimed wire.Claimed
			if err := json.Unmarshal(reply, &claimed); err != nil || claimed.Order == nil {
				return reply
			}
			claimed.Order.Code = tutti.DigestOf(old.Manifest)
			out = claimed
		case wire.OpCode:
			out = old
		default:
			return reply
		}
		raw, err := json.Marshal(out)
		if err != nil {
			l.t.Error(err)
		}
		return raw
	}
	l.line.answer = wire.OpCode
}

// TestCodeThatIsOlderThanWhatWasBegun: a node keeps the highest counter even if it has lost other
// files.
func TestCodeThatIsOlderThanWhatWasBegun(t *testing.T) {
	manifest := func(content, environment string) tutti.CodeManifest {
		digest := tutti.DigestOf([]byte(content))
		return tutti.CodeManifest{Version: 1, Environment: environment, Files: map[string]tutti.CodeFile{
			"manifests/site.pp": {Digest: digest, Size: int64(len(content))},
		}}
	}
	old, evil := manifest("old", "production"), servertest.SignAs(manifest("old", "production"), 3)
	evil.Statement = new(servertest.State(tutti.StatementCode, tutti.Signed{Environment: "production", Counter: 9}, "somebody"))
	cases := map[string]struct {
		given tutti.SignedCode
		says  string
	}{
		"only a permission to compile": {servertest.Permit("production", "old", time.Now().Add(time.Hour)), "not signed"},
		"a lower counter":              {servertest.SignAs(old, 2), "push it again to go back"},
		"the same counter":             {servertest.SignAs(old, 3), "this node has begun other code with the same counter"},
		"the form of before":           {servertest.Sign(old), "without a counter"},
		"of another environment":       {servertest.SignAs(manifest("old", "staging"), 9), "for environment staging"},
		"a counter of somebody else":   {evil, "not signed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			l.pushAs(site("begun"), counted(3))
			job := l.job()
			l.start()
			if got := l.end(job); got.Outcome != tutti.Changed {
				t.Fatalf("result %+v", got)
			}
			l.kill()
			for _, file := range []string{agent.BegunFile, "code"} { // the node remembers the counter without these files
				if err := os.RemoveAll(filepath.Join(l.dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			started := l.ruby.started()
			l.given(tc.given)
			job = l.job()
			l.start()
			got := l.end(job)
			if got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, tc.says) || l.ruby.started() != started {
				t.Errorf("result %+v after %d starts, want that it is refused: %q", got, l.ruby.started()-started, tc.says)
			}
		})
	}
}

// TestTheFormOfBefore: the node accepts signatures without a counter until it has begun code with a
// counter. The node accepts such signatures only in the environment that the manifest names, because
// the server chooses the order's environment.
func TestTheFormOfBefore(t *testing.T) {
	l := newLab(t, applies)
	manifest := func(content string) tutti.CodeManifest {
		digest := tutti.DigestOf([]byte(content))
		return tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{
			"manifests/site.pp": {Digest: digest, Size: int64(len(content))},
		}}
	}
	l.push(site("before"))
	l.start()
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Fatalf("before any counter: %+v", got)
	}
	invented := func(what, says string) {
		t.Helper()
		l.kill()
		started := l.ruby.started()
		l.given(servertest.Sign(manifest("old")))
		give := l.line.alter
		l.line.alter = func(op string, reply []byte) []byte {
			reply = give(op, reply)
			if op != wire.OpClaim {
				return reply
			}
			return []byte(strings.ReplaceAll(string(reply), `"environment":"production"`, `"environment":"invented"`))
		}
		job := l.job()
		l.start()
		got := l.end(job)
		if got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, says) || l.ruby.started() != started {
			t.Errorf("%s: result %+v after %d starts, want that it is refused: %q", what, got, l.ruby.started()-started, says)
		}
		l.line.mu.Lock() // from now on the agent gets the real answers
		l.line.alter = nil
		l.line.mu.Unlock()
	}
	invented("before any counter", "for environment production, but the order is for environment invented")
	l.pushAs(site("begun"), counted(3))
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Fatalf("with a counter: %+v", got)
	}
	invented("after it", "the order is for environment invented")
	l.kill()
	l.given(servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "invented", Files: manifest("old").Files}))
	give := l.line.alter
	l.line.alter = func(op string, reply []byte) []byte {
		return []byte(strings.ReplaceAll(string(give(op, reply)), `"environment":"production"`, `"environment":"invented"`))
	}
	job := l.job()
	l.start()
	if got := l.end(job); got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, "without a counter") {
		t.Errorf("in an environment of which no counter is known: result %+v, want that it is refused", got)
	}
}

// TestCodeThatIsPushedAgain: the agent accepts code that was pushed again, although its tree is still
// there. The agent gets the new signature, because only a new signature allows going back.
func TestCodeThatIsPushedAgain(t *testing.T) {
	l := newLab(t, applies)
	l.start()
	for i, content := range []string{"one", "two", "one", "one"} {
		l.pushAs(site(content), counted(uint64(i+1)))
		if got := l.end(l.job()); got.Outcome != tutti.Changed {
			t.Errorf("push %d: result %+v", i, got)
		}
	}
	asked := l.line.count(wire.OpCode)
	if got := l.end(l.job()); got.Outcome != tutti.Changed || l.line.count(wire.OpCode) != asked {
		t.Errorf("result %+v; the node asked %d times for what it has", got, l.line.count(wire.OpCode)-asked)
	}
}

// The method `follows` waits until the server knows that the node follows this many statements
// about code keys.
func (l *lab) follows(counter uint64) {
	l.t.Helper()
	l.line.wait("a claim that says what the node follows", func() bool {
		var c wire.Claim
		return json.Unmarshal(l.line.payload(wire.OpClaim), &c) == nil && c.Trusts != nil && *c.Trusts == counter
	})
	n := l.line.count(wire.OpClaim)
	if err := l.fleet.Bus.Ring(l.node.Key, wire.RingClaim, nil); err != nil {
		l.t.Fatal(err)
	}
	l.line.until(wire.OpClaim, n+1) // the agent makes this claim after it got the answer to the previous claim
}

// TestANodeFollowsCodeKeys: a node follows new statements about code keys and reports
// this to the server. The node also follows statements that it has missed.
func TestANodeFollowsCodeKeys(t *testing.T) {
	l := newLab(t, applies)
	l.pushAs(site("one"), counted(1))
	l.start()
	l.end(l.job())
	both := servertest.State(tutti.StatementTrust, tutti.Trusted{Fleet: servertest.FleetID, Counter: 1, Keys: []string{"operator", "new"}}, "operator", "new")
	alone := servertest.State(tutti.StatementTrust, tutti.Trusted{Fleet: servertest.FleetID, Counter: 2, Keys: []string{"new"}}, "new")
	if err := l.fleet.TrustKeys(servertest.Operator(), both); err != nil {
		t.Fatal(err)
	}
	l.follows(1)
	l.kill()
	if err := l.fleet.TrustKeys(servertest.Operator(), alone); err == nil {
		t.Fatal("the server forgets a key whose code the nodes are told to run")
	}
	said, err := l.fleet.Signing(servertest.Operator())
	if err != nil || len(said.Codes) != 1 {
		t.Fatal(said, err)
	}
	again := *said.Codes[0].Statement
	again.Signatures = slices.Concat(again.Signatures, servertest.State("", nil, "new").Signatures)
	if err := l.fleet.SignCode(servertest.Operator(), tutti.CodeSign{Code: said.Codes[0].Code, Statement: again}); err != nil {
		t.Fatal(err)
	}
	if err := l.fleet.TrustKeys(servertest.Operator(), alone); err != nil {
		t.Fatal(err)
	}
	l.start() // the agent follows both statements in order, and has to ask for the signature of the new key
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
	l.follows(2)
	if got := l.view().Trusts; got != 2 {
		t.Errorf("the server knows that the node follows statement %d, want 2", got)
	}
}
