package core

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
)

// Basis is what a decision on grants stands on.
type Basis struct {
	fleet  tutti.Digest // of the fleet file; empty: nothing was decided
	old    bool         // what an old release has kept of the file means something else
	Groups []tutti.GroupName
}

func (b Basis) Equal(o Basis) bool {
	return b.fleet != "" && b.fleet == o.fleet && b.old == o.old && slices.Equal(b.Groups, o.Groups)
}

func (tx *Tx) Basis(n *fold.Node) Basis {
	return Basis{tx.Registry.FleetDigest, policy.Old(tx.Fleet()), tx.Registry.Groups(n)}
}

// Ungranted returns the first thing that a node wants to publish and may not.
func (tx *Tx) Ungranted(n *fold.Node, exports []policy.Inspected, keys []string) (what string, err error) {
	fleet, groups := tx.Fleet(), tx.Registry.Groups(n)
	if refused, err := policy.ExportsOf(fleet, groups, n.Node).MayAll(exports); err != nil {
		return "export " + refused, err
	}
	granted := policy.KeysOf(fleet, groups, n.Node)
	for _, key := range keys {
		if err := granted.MayWrite(key); err != nil {
			return "write " + key, err
		}
	}
	return "", nil
}

// Admission is what a run that is held may publish, as long as the basis is the same.
type Admission struct {
	Run   tutti.RunID
	Basis Basis
}

// Withheld returns what a run that was held wants to publish and may not: the fleet file may be another one since.
func (tx *Tx) Withheld(n *fold.Node, r *engine.Run, exports []tutti.Export) error {
	was := tx.Core.Admitted[n.Node]
	delete(tx.Core.Admitted, n.Node)
	if was.Run == r.Run && was.Basis.Equal(tx.Basis(n)) {
		return nil
	}
	_, err := tx.Ungranted(n, policy.Inspect(exports), r.Values)
	return err
}
