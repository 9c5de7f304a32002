package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const (
	effectFleet = `
fleet: test
environment: {name: production, path: ./code}
groups: {all: {joined: true}}
grants: [{to: all, read: [app/**]}]
plans: {all: {steps: [{run: all}]}}
`
	effectReaction = `
reactive: true
reaction:
  ask_above: 7
  wide: 30m
  reads:
    - {key: app/later, when: scheduled}
    - {key: hiera/**, when: window}
`
)

// TestEffect checks that the server can predict the effect of a change: the nodes that read the changed data
// directly. For each node, the server names the first question that would get another answer.
func TestEffect(t *testing.T) {
	f := servertest.Start(t)
	asks := map[tutti.NodeName]wire.Gate{
		"reads-01":  {Reads: []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "app/x"}}}},
		"reads-02":  {Reads: []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "app/x"}}, {Query: tutti.Query{Kind: tutti.QueryValue, Key: "app/later"}}}},
		"hiera-01":  {Keys: []tutti.KeyRead{{Key: "app::x"}}},
		"both-01":   {Keys: []tutti.KeyRead{{Key: "app::x"}}, Reads: []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/hiera/app::x"}}}},
		"silent-01": {},
	}
	for n := range asks {
		f.Join(n, "all")
	}
	f.Push(effectFleet)
	f.Start("all", tutti.ModeApply)
	for n, in := range asks {
		in.Run = f.Node(n).MustClaim().Run
		if got := f.Node(n).Gate(in).Verdict; got != tutti.GateGo {
			t.Fatalf("%s is told %q, want go", n, got)
		}
		f.Node(n).Finish(in.Run)
	}
	type names = []tutti.NodeName
	value := func(key, text string, want api.Effect, reason string) {
		t.Helper()
		got, err := f.Effect(servertest.Operator(), key, json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", reason, diff)
		}
	}
	plain := func(n ...tutti.NodeName) api.Effect {
		if len(n) == 0 {
			return api.Effect{}
		}
		return api.Effect{Runs: len(n), When: []api.EffectRuns{{Runs: len(n), Nodes: n}}}
	}
	value("app/x", "1", plain("reads-01", "reads-02"), "who read that there is none")
	value("app/y", "1", plain(), "nobody has read it")
	value("shared/hiera/app::x", "1", plain("both-01", "hiera-01"), "who looked the hiera key up, once")
	value("node/hiera-01/hiera/app::x", "1", plain("hiera-01"), "the node whose level it is")
	set(t, f, "app/x", "1")
	value("app/x", "1", plain(), "an equal value")
	value("app/x", "2", plain("reads-01", "reads-02"), "another one")
	value("app/x", "", plain(), "what nobody has read yet")

	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "f", Source: []byte(effectFleet + effectReaction)}); err != nil {
		t.Fatal(err)
	}
	reactive := func(runs int, when ...api.EffectRuns) api.Effect {
		return api.Effect{Runs: runs, When: when, Reactive: true, Wide: 30 * time.Minute, AskAbove: 7}
	}
	value("app/x", "2", reactive(2, api.EffectRuns{When: tutti.ReactNow, Runs: 2, Nodes: names{"reads-01", "reads-02"}}), "now")
	value("app/later", "2", reactive(1, api.EffectRuns{When: tutti.ReactScheduled, Runs: 1, Nodes: names{"reads-02"}}), "by a rule")
	value("shared/hiera/app::x", "2", reactive(2,
		api.EffectRuns{When: tutti.ReactNow, Runs: 1, Nodes: names{"both-01"}},
		api.EffectRuns{When: tutti.ReactWindow, Runs: 1, Nodes: names{"hiera-01"}}), "who reads it in two ways runs at the first time")
	value("app/nothing", "2", reactive(0), "nobody")

	set(t, f, "shared/hiera/app::x", "2")
	for n, says := range map[tutti.NodeName]string{"hiera-01": "it runs within 30m", "silent-01": ""} {
		got, err := f.ExplainNode(servertest.Operator(), n)
		if err != nil || !strings.HasSuffix(got.Standing.Rests, says) || (says == "") != (got.Standing.Rests == "") {
			t.Errorf("%s does not run by itself because %q, %v; want %q", n, got.Standing.Rests, err, says)
		}
	}
}
