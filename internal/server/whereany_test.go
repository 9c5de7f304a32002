package server_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// believed is what a test knows about a node.
type believed struct {
	facts string // "" if the server has none
	class string // "-" if the ENC has never answered
}

// The function `expects` says how a condition ends: in, out or unknown.
func expects(condition string, name tutti.NodeName, b believed) string {
	decide := func(known, yes bool) string {
		switch {
		case !known:
			return "unknown"
		case yes:
			return "in"
		}
		return "out"
	}
	knownX := b.facts == `{"x":1}` || b.facts == `{"x":2}`
	switch condition {
	case `facts.x == 1`:
		return decide(knownX, b.facts == `{"x":1}`)
	case `facts.x == 2 || certname == "a"`:
		return decide(knownX || name == "a", name == "a" || b.facts == `{"x":2}`)
	case `!(has(facts.x) && facts.x == 1)`:
		return decide(b.facts != "", b.facts != `{"x":1}`)
	}
	return decide(b.class != "-", b.class == "k")
}

// TestMatchesAreWhatTheConditionsSay lets nodes, the ENC and operators do anything, and a keeper decide now and then. When the
// keeper has decided, the groups of each node are those that the present facts and classes give it. Another keeper, as after
// a restart, changes nothing. A snapshot has the same groups.
func TestMatchesAreWhatTheConditionsSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := servertest.Start(t, func(o *server.Options) { o.Logger = slog.New(slog.DiscardHandler) })
		defer func() { _ = f.Stop() }()
		ctx, nodes, machines := servertest.Operator(), map[tutti.NodeName]*believed{}, map[tutti.NodeName]int{}
		condition, held := "", false
		join := func(name tutti.NodeName) {
			machines[name]++
			n := &servertest.Node{Name: name, Key: servertest.Key(fmt.Sprintf("%s %d", name, machines[name])), Fleet: f}
			token, err := f.CreateToken(ctx, api.CreateToken{Name: string(name)})
			if err == nil {
				_, err = f.Enrol(t.Context(), n.Request(token))
			}
			if err == nil {
				nodes[name] = &believed{class: "-"}
			}
		}
		keeper := f.Matches()
		for range rapid.IntRange(10, 80).Draw(rt, "steps") {
			name := rapid.SampledFrom([]tutti.NodeName{"a", "b"}).Draw(rt, "node")
			switch rapid.SampledFrom([]string{"join", "join", "remove", "facts", "facts", "class", "class", "file", "decide", "decide", "decide"}).Draw(rt, "what") {
			case "join": // another machine, if the name is taken
				_ = f.ReplaceNode(ctx, name)
				join(name)
			case "remove":
				if f.RemoveNode(ctx, name) == nil {
					delete(nodes, name)
				}
			case "facts":
				text := rapid.SampledFrom([]string{`{"x":1}`, `{"x":2}`, `{"y":1}`}).Draw(rt, "facts")
				n := &servertest.Node{Name: name, Key: servertest.Key(fmt.Sprintf("%s %d", name, machines[name])), Fleet: f}
				if hold(t, n, tutti.InventoryFacts, zipped(text)) == nil && nodes[name] != nil {
					nodes[name].facts = text
				}
			case "class":
				class := rapid.SampledFrom([]string{"k", "other", "-"}).Draw(rt, "class")
				var answer *tutti.Classification
				if class != "-" {
					of := withClass(class, "null")
					answer = &of
				}
				if f.ENC().Classify(ctx, name, answer) == nil && nodes[name] != nil {
					nodes[name].class = class
				}
			case "file":
				condition = rapid.SampledFrom([]string{`facts.x == 1`, `facts.x == 2 || certname == "a"`, `!(has(facts.x) && facts.x == 1)`, `"k" in classes`, ""}).Draw(rt, "condition")
				held = condition != `"k" in classes` || rapid.Bool().Draw(rt, "held")
				text := "fleet: x\n"
				if held {
					text += "inventory: {facts: true}\n"
				}
				if condition != "" {
					text += "groups: {g: {where: '" + condition + "'}}\n"
				}
				if _, err := f.SetFleet(ctx, api.FleetSource{File: "f", Source: []byte(text)}); err != nil {
					rt.Fatal(err)
				}
				for _, n := range nodes {
					if !held {
						n.facts = ""
					}
				}
			case "decide":
				if err := keeper.Once(t.Context()); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if err := keeper.Once(t.Context()); err != nil {
			rt.Fatal(err)
		}
		want, got := map[tutti.NodeName]string{}, map[tutti.NodeName]string{}
		for name, n := range nodes {
			if want[name] = "out"; condition != "" {
				want[name] = expects(condition, name, *n)
			}
		}
		views, err := f.ListNodes(ctx)
		if err != nil {
			rt.Fatal(err)
		}
		for _, v := range views {
			got[v.Node] = "out"
			for _, m := range v.Matches {
				if got[v.Node] = "in"; m.Unknown != "" {
					got[v.Node] = "unknown"
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("with %s: -want +got\n%s", condition, diff)
		}
		n := len(f.Events())
		if err := f.Matches().Once(t.Context()); err != nil || len(f.Since(n)) > 0 {
			rt.Errorf("a second keeper: %v, %v", f.Since(n), err)
		}
		if events := f.Events(); len(events) > 1 {
			cut := rapid.IntRange(1, len(events)-1).Draw(rt, "cut")
			if diff := server.Fold(events).Diff(server.Fold(needed(events[:cut]), events[cut:]), events[len(events)-1].At); diff != "" {
				rt.Errorf("-whole +from a snapshot\n%s", diff)
			}
		}
	})
}
