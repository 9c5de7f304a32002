package nodes

import (
	"encoding/json"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
)

// acting returns the list of operators who sign actions, if a node has an older one.
func (tx *tx) acting(has *uint64) *tutti.Statement {
	if now := tx.Registry.Acting; has != nil && now != nil && now.Counter > *has {
		return &now.Statement
	}
	return nil
}

// trusts notes which statements about code keys a node follows, and returns those that it lacks.
func (tx *tx) trusts(n *fold.Node, says *uint64) []tutti.Statement {
	if says == nil {
		return nil
	}
	if *says != n.Trusts && tx.Core.Presence.MayPin(n.Node, tx.Now) { // one that says something else all the time does not fill the log
		tx.Emit(tutti.ActorNode(n.Node), &tutti.NodeTrusts{Node: n.Node, Counter: *says})
	}
	all := tx.Registry.Trust
	return all[min(*says, uint64(len(all))):]
}

// trusted completes what a newcomer is told: the keys that sign now. An agent that follows no statements knows one
// key, the one that has been there for longest.
func (tx *tx) trusted(out *api.Enrolled) error {
	out.Operators = tx.acting(new(uint64))
	if len(tx.Registry.Trust) == 0 {
		return nil
	}
	last := tx.Registry.Trust[len(tx.Registry.Trust)-1]
	var body tutti.Trusted
	if err := json.Unmarshal(last.Body, &body); err != nil {
		return tutti.Wrap(tutti.CodeDamaged, err, "which code keys sign")
	}
	out.Trust, out.CodeKey = &last, body.Keys[0]
	return nil
}
