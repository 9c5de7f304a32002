package nodes

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/server/core"
)

// published is what a run wants to publish, and the decision on it. It is read and decided without the writer's queue.
// The writer takes that decision as long as its basis is the same: a check of what one node hands over can take
// seconds.
type published struct {
	exports []policy.Inspected
	keys    []string

	basis core.Basis
	what  string // what it may not publish
	err   error
	wants []tutti.Grant
}

// publishing reads what a run hands over.
func publishing(exports []tutti.Export, keys []string) *published {
	return &published{exports: policy.Inspect(exports), keys: keys}
}

// light reports whether the writer decides by itself, which takes less time than to wait for a readers' version.
func (p *published) light(size int) bool {
	return size <= maxSmall && len(p.exports)+len(p.keys) <= maxLight
}

// mayPublish refuses, before anything is applied, a catalog that exports or publishes
// what its node has no grant for. r is nil if the run is not a run of Tutti.
func (tx *tx) mayPublish(n *fold.Node, r *engine.Run, p *published) error {
	if now := tx.Basis(n); !now.Equal(p.basis) {
		p.basis = now
		p.what, p.err = tx.Ungranted(n, p.exports, p.keys)
		p.wants = nil
		if p.err != nil {
			p.wants = policy.Wants(tx.Fleet(), now.Groups, n.Node, p.exports, p.keys, nil)
		}
	}
	if p.err == nil {
		return nil
	}
	tx.refused(r, p.wants)
	return tx.Deny(tutti.ActorNode(n.Node), p.what, p.err)
}

// mayTryAgain refuses a large gate of a run whose large gates were refused before. An honest run ends when it is refused.
// To read such a gate again would take processor time from all nodes.
func (tx *tx) mayTryAgain(key tutti.NodeKey, n *fold.Node, r *engine.Run, size int) error {
	had := tx.Core.Shares.Refused(key, r.Run)
	if had+size <= MaxTried {
		return nil
	}
	return tx.Deny(tutti.ActorNode(n.Node), "come to its gate again and again",
		tutti.Errorf(tutti.CodeRefused, "run %s of node %s was refused %d bytes at its gate, at most %d are looked at", r.Run, n.Node, had, MaxTried))
}
