package core

import (
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// Basis is the data on which a decision about grants depends.
type Basis struct {
	fleet  tutti.Digest // digest of the fleet file; it is empty if nothing was decided yet
	old    bool         // the grants of the file have the meaning that they had before release 0.3.0
	Groups []tutti.GroupName
}

// Equal reports whether b and o are known and the same.
func (b Basis) Equal(o Basis) bool {
	return b.fleet != "" && b.fleet == o.fleet && b.old == o.old && slices.Equal(b.Groups, o.Groups)
}

// Basis returns what decisions on a node's grants depend on now.
func (tx *Tx) Basis(n *fold.Node) Basis {
	return Basis{tx.Registry.FleetDigest, policy.Old(tx.Fleet()), tx.Registry.Groups(n)}
}

// Ungranted returns the first export or key that a node wants to publish without a grant.
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

// Admission records that a held run may publish its exports, as long as the basis does not
// change.
type Admission struct {
	Run   tutti.RunID
	Basis Basis
}

// Withheld returns an error if a held run wants to publish something for which it has no grant. The fleet
// file may have changed while the run was held.
func (tx *Tx) Withheld(n *fold.Node, r *engine.Run, exports []tutti.Export) error {
	was := tx.Core.Admitted[n.Node]
	delete(tx.Core.Admitted, n.Node)
	if was.Run == r.Run && was.Basis.Equal(tx.Basis(n)) {
		return nil
	}
	_, err := tx.Ungranted(n, policy.Inspect(exports), r.Values)
	return err
}

// SetExports emits the exports of a run. If other nodes already read equal exports, SetExports emits
// nothing.
func (tx *Tx) SetExports(n *fold.Node, r *engine.Run, exports []tutti.Export, set tutti.Digest, overlay bool) {
	if !overlay && n.Exports == set && !tx.Data.Overlaid(r.Job, n.Node) {
		return // other nodes already read equal exports
	}
	body := &tutti.ExportsSet{Node: n.Node, Run: r.Run, Job: r.Job, Overlay: overlay, Set: set, Count: len(exports), Exports: exports}
	tx.Emit(tutti.ActorNode(n.Node), body)
}

// StoreExports stores a set of exports as a blob. Equal sets have equal digests.
func (s *Core) StoreExports(ctx context.Context, room past.Room, exports []tutti.Export) (tutti.Digest, error) {
	if len(exports) == 0 {
		return "", nil
	}
	digest, err := s.Past.Store(ctx, room, exports)
	return digest, tutti.Wrap("", err, "keep %d exports", len(exports))
}

// SetValue emits the change of a value. If the value does not change, SetValue emits nothing.
func (tx *Tx) SetValue(by string, owner tutti.NodeName, r *engine.Run, in wire.Publish) error {
	if err := tx.Data.MayOwn(in.Key, owner); err != nil {
		return err
	}
	var job tutti.JobID
	if r != nil {
		job = r.Job
	}
	current, found := tx.Data.Value(in.Key)
	switch {
	case in.Withdraw && found:
		tx.Emit(by, &tutti.ValueUnset{Key: in.Key, Owner: owner, Run: in.Run, Job: job})
	case !in.Withdraw && (!found || !data.Equal(current.Value, in.Value)):
		tx.Emit(by, &tutti.ValueSet{Key: in.Key, Value: in.Value, Owner: owner, Run: in.Run, Job: job})
	}
	return nil
}
