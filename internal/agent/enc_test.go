package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// A run gets what the ENC says about its node, and the record has the question. If there is no answer, this is not an
// empty answer.
func TestARunAsksTheENC(t *testing.T) {
	for reason, answer := range map[string]*tutti.Classification{
		"an answer":   {Classes: map[string]json.RawMessage{"role::db": json.RawMessage("null")}, Environment: "canary"},
		"without one": nil,
	} {
		l := started(t)
		if err := l.fleet.ENC().Classify(t.Context(), "db-01", answer); err != nil {
			t.Fatal(err)
		}
		var got reply
		l.ruby.mu.Lock()
		l.ruby.script = func(p *puppet) tutti.Result {
			got = p.say(ask{"op": "enc"})
			p.say(ask{"op": "gate", "keys": []ask{}, "exports": []ask{}})
			return changed()
		}
		l.ruby.mu.Unlock()
		rec := l.record(l.end(l.job()).Run)
		want := ""
		if answer != nil {
			want = `{"classes":{"role::db":null}}`
		}
		if !got.OK || got.Found != (answer != nil) || string(got.Answer) != want {
			t.Errorf("%s: %+v, want %s", reason, got, want)
		}
		read := tutti.Read{Query: tutti.Query{Kind: tutti.QueryENC}, Found: answer != nil}
		if answer != nil {
			read.Digest = tutti.DigestOf([]byte(want))
		}
		if len(rec.Reads) == 1 {
			rec.Reads[0].Seq = 0
		}
		if diff := cmp.Diff([]tutti.Read{read}, rec.Reads); diff != "" {
			t.Errorf("%s: -want +got\n%s", reason, diff)
		}
	}
}
