package server

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
)

// published is what a run wants to publish, and what was decided on it. It is read and decided on beside the writer,
// which takes that decision as long as nothing has changed on which it stands: what one node hands over can take
// seconds to look at.
type published struct {
	exports []policy.Inspected
	keys    []string

	basis basis
	what  string // that it may not
	err   error
	wants []tutti.Grant
}

// basis is what a decision on grants stands on.
type basis struct {
	fleet  tutti.Digest // of the fleet file; empty: nothing was decided
	old    bool         // what an old release has kept of the file means something else
	groups []tutti.GroupName
}

func (b basis) equal(o basis) bool {
	return b.fleet != "" && b.fleet == o.fleet && b.old == o.old && slices.Equal(b.groups, o.groups)
}

func (tx *tx) basis(n *fold.Node) basis {
	return basis{tx.Registry.FleetDigest, policy.Old(tx.Fleet()), tx.Registry.Groups(n)}
}

// publishing reads what a run hands over.
func publishing(exports []tutti.Export, keys []string) *published {
	return &published{exports: policy.Inspect(exports), keys: keys}
}

// light reports whether the writer decides on it by itself, which takes less time than to wait for a version for readers.
func (p *published) light(size int) bool {
	return size <= maxSmall && len(p.exports)+len(p.keys) <= maxLight
}

// mayPublish refuses, before anything is applied, a catalog that exports or wants
// published what its node has no grant for. The run may be none of ours: nil.
func (tx *tx) mayPublish(n *fold.Node, r *engine.Run, p *published) error {
	if now := tx.basis(n); !now.equal(p.basis) {
		p.basis = now
		p.what, p.err = tx.ungranted(n, p.exports, p.keys)
		p.wants = nil
		if p.err != nil {
			p.wants = policy.Wants(tx.Fleet(), now.groups, n.Node, p.exports, p.keys, nil)
		}
	}
	if p.err == nil {
		return nil
	}
	tx.refused(r, p.wants)
	return tx.deny(tutti.ActorNode(n.Node), p.what, p.err)
}

// ungranted returns the first thing that a node wants to publish and may not.
func (tx *tx) ungranted(n *fold.Node, exports []policy.Inspected, keys []string) (what string, err error) {
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

// admission is what a run that is held may publish, as long as the basis is the same.
type admission struct {
	run   tutti.RunID
	basis basis
}

// withheld returns what a run that was held wants to publish and may not: the fleet file may be another one since.
func (tx *tx) withheld(n *fold.Node, r *engine.Run, exports []tutti.Export) error {
	was := tx.server.admitted[n.Node]
	delete(tx.server.admitted, n.Node)
	if was.run == r.Run && was.basis.equal(tx.basis(n)) {
		return nil
	}
	_, err := tx.ungranted(n, policy.Inspect(exports), r.Values)
	return err
}

// mayTryAgain refuses a large gate of a run that was refused as large ones. An honest run ends when it is refused; to
// read a gate again takes the processors of everybody.
func (tx *tx) mayTryAgain(key tutti.NodeKey, n *fold.Node, r *engine.Run, size int) error {
	had := tx.server.shares.Refused(key, r.Run)
	if had+size <= maxTried {
		return nil
	}
	return tx.deny(tutti.ActorNode(n.Node), "come to its gate again and again",
		tutti.Errorf(tutti.CodeRefused, "run %s of node %s was refused %d bytes at its gate, at most %d are looked at", r.Run, n.Node, had, maxTried))
}
