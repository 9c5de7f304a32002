package chaos

import (
	"fmt"
	"slices"
)

// Turn is something after which a machine, or the server, is not who it was. No other fault happens meanwhile.
type Turn struct {
	Kind TurnKind
	Host string
}

// TurnKind is what a turn does.
type TurnKind string

// The kinds of turns.
const (
	SetBack TurnKind = "set back" // a node's state, to what it was before its last run
	Replace TurnKind = "replace"  // another machine takes the node's name
	Clone   TurnKind = "clone"    // the node's state is copied to a spare host, and both live
	Restore TurnKind = "restore"  // the server, from a backup of before the last runs
)

// String is one line for people.
func (t Turn) String() string { return fmt.Sprintf("%s on %s", t.Kind, t.Host) }

// Turns returns one turn of each kind in the order that follows from the seed. Without a spare host nothing is cloned.
func Turns(seed uint64, fleet Fleet, spare bool) []Turn {
	r := &roll{^seed}
	kinds := []TurnKind{SetBack, Replace, Restore}
	if spare {
		kinds = append(kinds, Clone)
	}
	nodes := slices.Sorted(slices.Values(fleet.Nodes))
	var out []Turn
	for len(kinds) > 0 {
		i := r.under(len(kinds))
		t := Turn{Kind: kinds[i], Host: nodes[r.under(len(nodes))]}
		if t.Kind == Restore {
			t.Host = fleet.Server
		}
		out = append(out, t)
		kinds = slices.Delete(kinds, i, i+1)
	}
	return out
}
