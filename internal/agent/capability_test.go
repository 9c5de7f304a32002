package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// TestAClaimSaysWhatTheAgentKnows checks that a claim names the agent's
// capabilities and release.
func TestAClaimSaysWhatTheAgentKnows(t *testing.T) {
	l := newLab(t, applies)
	l.start()
	l.line.until(wire.OpClaim, 1)
	var got wire.Claim
	if err := json.Unmarshal(l.line.payload(wire.OpClaim), &got); err != nil {
		t.Fatal(err)
	}
	got.Seen = tutti.Position{} // the first claim has no position
	if diff := cmp.Diff(wire.Claim{Version: "test", Knows: tutti.Capabilities(), Begun: &tutti.Fence{}, Trusts: new(uint64), Operators: new(uint64)}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestAnOrderOfALaterReleaseIsRefused: the run ends with a message that says what to do. Puppet
// is not started. An agent that ignored the unknown field would let Puppet apply the whole
// catalog.
func TestAnOrderOfALaterReleaseIsRefused(t *testing.T) {
	for _, field := range []string{`"kind":"reboot"`, `"nice":19`, `"mode":"dance"`} {
		t.Run(field, func(t *testing.T) {
			l := newLab(t, applies)
			l.line.alter = func(op string, reply []byte) []byte {
				if op != wire.OpClaim {
					return reply
				}
				return []byte(strings.Replace(string(reply), `"mode":"apply"`, `"mode":"apply",`+field, 1))
			}
			l.start()
			got := l.end(l.job())
			if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseRefused || l.ruby.started() != 0 {
				t.Errorf("result %+v after %d starts", got, l.ruby.started())
			}
			name, _, _ := strings.Cut(field, ":")
			for _, part := range []string{strings.Trim(name, `"`), "this agent (test) cannot carry it out: upgrade tutti on db-01"} {
				if !strings.Contains(got.Message, part) {
					t.Errorf("it says %q, want %q in it", got.Message, part)
				}
			}
		})
	}
}

// answersOf is a line that stores the agent's answers to questions.
type answersOf struct {
	*line
	sent chan []byte
}

func (a answersOf) Send(op string, payload []byte) error {
	if op != wire.OpAnswer {
		return a.line.Send(op, payload)
	}
	a.sent <- payload
	return nil
}

// TestAQuestionOfALaterReleaseIsAnswered: the answer names what this release does
// not know. The agent does nothing else.
func TestAQuestionOfALaterReleaseIsAnswered(t *testing.T) {
	for _, tc := range []struct{ text, says string }{
		{`{"request":"R","action":"disable","caller":"operator:ada","until":"2027-01-01T00:00:00Z"}`, `unknown field "until"`},
		{`{"request":"R","action":"reboot","caller":"operator:ada"}`, `action "reboot"`},
	} {
		l, own := newLab(t, nil), &ownPuppet{}
		answers := answersOf{l.line, make(chan []byte, 1)}
		l.start(func(o *agent.Options) { o.Bus, o.Local, o.Allow = answers, own, allowAll })
		l.line.settle()
		if err := l.fleet.Bus.Ring(l.node.Key, wire.RingRemote, []byte(tc.text)); err != nil {
			t.Fatal(err)
		}
		var got tutti.RemoteReply
		if err := json.Unmarshal(<-answers.sent, &got); err != nil {
			t.Fatal(err)
		}
		if got.Verdict != tutti.RemoteFailed || !strings.Contains(got.Message, tc.says) || len(own.made()) > 0 {
			t.Errorf("%+v, done: %v; want %q", got, own.made(), tc.says)
		}
	}
}
