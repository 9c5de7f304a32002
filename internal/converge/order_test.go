package converge_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// TestContradictingOrderEnds: groups may share nodes. Then nodes can wait for each other
// although the groups do not. No node may wait for itself for ever.
func TestContradictingOrderEnds(t *testing.T) {
	plain := func() *manifest { return &manifest{compile: func(answers) catalog { return catalog{} }} }
	s := newSim(t, map[tutti.NodeName]*manifest{"a": plain(), "b": plain(), "c": plain()})
	s.order = []converge.Order{
		{First: []tutti.NodeName{"a"}, Then: []tutti.NodeName{"b"}},
		{First: []tutti.NodeName{"b"}, Then: []tutti.NodeName{"a"}},
		{First: []tutti.NodeName{"a", "b"}, Then: []tutti.NodeName{"c"}},
	}
	j := s.all(first)
	var gone []tutti.NodeName
	for _, n := range j.Steps[0].Nodes {
		if r := n.Last(); r.Passed() {
			gone = append(gone, n.Node)
		}
	}
	if j.Verdict != tutti.VerdictConverged || len(gone) != 3 {
		t.Errorf("verdict %s (%s), %v ran, want converged and all three:\n%s", j.Verdict, j.Message, gone, s.tail())
	}
	c, b := s.engine.Last("c").Passed, s.engine.Last("b").Passed
	if !c.GatedAt.After(b.GatedAt) {
		t.Errorf("c went at %s, b at %s: what contradicts nothing must stay", c.GatedAt, b.GatedAt)
	}
}
