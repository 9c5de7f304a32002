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

// Basis is what a decision on grants depends on.
type Basis struct {
	fleet  tutti.Digest // of the fleet file; empty: nothing was decided
	old    bool         // the file has grants of a release before 0.3.0, with another meaning
	Groups []tutti.GroupName
}

// Equal reports whether both decisions have the same, known basis.
func (b Basis) Equal(o Basis) bool {
	return b.fleet != "" && b.fleet == o.fleet && b.old == o.old && slices.Equal(b.Groups, o.Groups)
}

// Basis returns what decisions on a node's grants depend on now.
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

// Admission says what a held run may publish, as long as the basis is the same.
type Admission struct {
	Run   tutti.RunID
	Basis Basis
}

// Withheld returns an error if a held run wants to publish what it may not: the fleet file may have changed.
func (tx *Tx) Withheld(n *fold.Node, r *engine.Run, exports []tutti.Export) error {
	was := tx.Core.Admitted[n.Node]
	delete(tx.Core.Admitted, n.Node)
	if was.Run == r.Run && was.Basis.Equal(tx.Basis(n)) {
		return nil
	}
	_, err := tx.Ungranted(n, policy.Inspect(exports), r.Values)
	return err
}

// SetExports emits what a run exports, unless others already read the same.
func (tx *Tx) SetExports(n *fold.Node, r *engine.Run, exports []tutti.Export, set tutti.Digest, overlay bool) {
	if !overlay && n.Exports == set && !tx.Data.Overlaid(r.Job, n.Node) {
		return // others read the same exports as before
	}
	body := &tutti.ExportsSet{Node: n.Node, Run: r.Run, Job: r.Job, Overlay: overlay, Set: set, Count: len(exports), Exports: exports}
	tx.Emit(tutti.ActorNode(n.Node), body)
}

// StoreExports keeps a set as a blob; equal sets have equal digests.
func (s *Core) StoreExports(ctx context.Context, room past.Room, exports []tutti.Export) (tutti.Digest, error) {
	if len(exports) == 0 {
		return "", nil
	}
	digest, err := s.Past.Store(ctx, room, exports)
	return digest, tutti.Wrap("", err, "keep %d exports", len(exports))
}

// SetValue emits the change of a value, or nothing if the value is already as wanted.
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
