package nodes

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/server/core"
)

// The type `published` contains what a run wants to publish, and the decision whether the run may publish it. The
// check of one node's exports can take seconds, so the server reads the exports and decides about them outside the
// writer's queue. The writer uses this decision if the basis of the decision has not changed.
type published struct {
	exports []policy.Inspected
	keys    []string

	basis core.Basis
	what  string // the first thing that the run may not publish
	err   error
	wants []tutti.Grant
}

// The function `publishing` inspects what a run wants to publish.
func publishing(exports []tutti.Export, keys []string) *published {
	return &published{exports: policy.Inspect(exports), keys: keys}
}

// The method `light` reports whether the writer checks a run's publications itself. For a small gate, it is faster to
// check in the writer than to wait for a readers' version.
func (p *published) light(size int) bool {
	return size <= maxSmall && len(p.exports)+len(p.keys) <= maxLight
}

// mayPublish refuses a catalog that exports or publishes something for which its node has
// no grant. The refusal comes before the node applies anything. The parameter r is nil if Tutti did not start the run.
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

// mayTryAgain refuses a large gate of a run if the server has refused large gates of this run before. An honest run
// ends after a refusal. Without this limit, a node could use up the processor time of the server by sending such a
// gate again and again.
func (tx *tx) mayTryAgain(key tutti.NodeKey, n *fold.Node, r *engine.Run, size int) error {
	had := tx.Core.Shares.Refused(key, r.Run)
	if had+size <= MaxTried {
		return nil
	}
	return tx.Deny(tutti.ActorNode(n.Node), "come to its gate again and again",
		tutti.Errorf(tutti.CodeRefused, "run %s of node %s was refused at its gate with %d bytes in all; the server reads at most %d", r.Run, n.Node, had, MaxTried))
}
