package chaos

import (
	"fmt"
	"slices"
)

// Turn changes the identity or the history of a machine or of the server. No other fault happens at the same
// time.
type Turn struct {
	Kind TurnKind
	Host string
}

// TurnKind is the kind of a turn.
type TurnKind string

// The kinds of turns.
const (
	SetBack TurnKind = "set back" // a node's state goes back to the time before its last run
	Replace TurnKind = "replace"  // another machine takes the node's name
	Clone   TurnKind = "clone"    // the node's state is copied to a spare host, and both machines run
	Restore TurnKind = "restore"  // the server is restored from a backup that was made before the last runs
)

// String returns one line for people.
func (t Turn) String() string { return fmt.Sprintf("%s on %s", t.Kind, t.Host) }

// Turns returns one turn of each kind, in an order that follows from the seed. If there is no spare host, the
// turn Clone is missing.
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
