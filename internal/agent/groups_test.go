package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// A run reads the groups of its node, and the record has the question.
func TestARunReadsTheGroupsOfItsNode(t *testing.T) {
	l := started(t)
	l.ruby.mu.Lock()
	l.ruby.script = func(p *puppet) tutti.Result {
		got := p.say(ask{"op": "groups", "at": ask{"file": "site.pp", "line": 3}})
		if !got.OK || !cmp.Equal(got.Groups, []string{"db"}) || got.Degraded {
			t.Errorf("groups: %+v", got)
		}
		p.say(ask{"op": "gate", "keys": []ask{}, "exports": []ask{}})
		return changed()
	}
	l.ruby.mu.Unlock()
	rec := l.record(l.end(l.job()).Run)
	want := tutti.Read{Query: tutti.Query{Kind: tutti.QueryGroups}, Found: true, Digest: tutti.DigestOf([]byte(`["db"]`)), At: tutti.Place{File: "site.pp", Line: 3}}
	if len(rec.Reads) == 1 {
		rec.Reads[0].Seq = 0
	}
	if diff := cmp.Diff([]tutti.Read{want}, rec.Reads); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A server that is older than the question refuses it. The run must not go on as if the node had no groups.
func TestAnOlderServerKnowsNoGroups(t *testing.T) {
	l := started(t)
	l.line.mu.Lock()
	l.line.refuse[wire.OpAsk] = tutti.Errorf(tutti.CodeInvalid, `question of kind "groups": the kinds are value, hiera and collect`)
	l.line.mu.Unlock()
	l.inRun(func(p *puppet) {
		if got := p.say(ask{"op": "groups"}); got.Code != tutti.CodeRefused || !strings.Contains(got.Error, "needs a newer Tutti server") || got.Groups != nil {
			t.Errorf("groups: %+v", got)
		}
	})
}
