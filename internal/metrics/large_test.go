package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/presence"
)

// viewOf returns a version of a fleet in which each node is in one of at most 100 groups.
func viewOf(t testing.TB, nodes int) explain.View {
	t.Helper()
	state, now := fold.New(), time.Now()
	apply := func(body tutti.Body) {
		state.Apply(tutti.Event{Seq: state.Seq + 1, At: now.Add(-time.Hour), By: "server", Body: body})
	}
	fleet := tutti.Fleet{Name: "large"}
	groups := min(nodes, 100)
	for i := range groups {
		g := tutti.Group{Name: tutti.GroupName(fmt.Sprintf("group-%02d", i))}
		for n := i; n < nodes; n += groups {
			g.Nodes = append(g.Nodes, tutti.NodeName(fmt.Sprintf("node-%05d", n)))
		}
		fleet.Groups = append(fleet.Groups, g)
	}
	apply(&tutti.FleetSet{Fleet: fleet})
	for n := range nodes {
		name := tutti.NodeName(fmt.Sprintf("node-%05d", n))
		apply(&tutti.NodeEnrolled{Node: name, Key: tutti.NodeKey("key-" + name)})
	}
	if len(state.Registry.Nodes) != nodes {
		t.Fatalf("%d nodes, want %d", len(state.Registry.Nodes), nodes)
	}
	present := presence.New()
	present.Load(state)
	return explain.View{
		State: state, Now: now, Present: present, Space: func() error { return nil },
		May: func(tutti.Verb, string) error { return nil }, Settings: explain.Settings{Silence: 30 * time.Second},
	}
}

func overviewOf(t testing.TB, nodes int) explain.Tally {
	t.Helper()
	return viewOf(t, nodes).Tally()
}
