package nodes

import (
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
)

// wentBack logs that a node has seen a later position of this server than the server has now. The function logs
// such a report at most once a minute. The node may be lying.
func (s *base) wentBack(node tutti.NodeName, err error) {
	now := time.Now().Unix()
	if last := s.saidBack.Load(); now-last >= 60 && s.saidBack.CompareAndSwap(last, now) {
		s.Opts.Logger.Error("a node reports that it has seen more events than this server has; check whether other nodes report this as well: tutti node list", "node", node, "error", err)
	}
}

// The method `compare` finds out whether the node or the log was set back (ADR 0018). The node reports the last
// order that it has begun, and the server looks up this order in the log. An agent that reports no fence is from a
// release that keeps no fences.
func (tx *tx) compare(n *fold.Node, says *tutti.Fence) {
	if says == nil {
		tx.giveUp(n)
		return
	}
	begun := *says
	if begun.Compare(n.Since) < 0 {
		begun = tutti.Fence{} // the fence is older than the node: it is of an earlier machine with this name, or from before this machine joined again
	}
	last := tx.Engine.Last(n.Node)
	lost, unknown := last.Compare(begun)
	if lost == nil && !unknown {
		return
	}
	if last.SetBack == nil { // if SetBack is set, the server has recorded this already, and the node must not fill the log
		body := &tutti.NodeSetBack{Node: n.Node, Begun: begun}
		if lost != nil {
			body.Run = lost.Run
		}
		tx.Emit(core.ActorServer, body)
	}
	if r := tx.Engine.Runs[tx.Engine.Active[n.Node]]; r != nil && r == lost {
		tx.Emit(core.ActorServer, &tutti.RunFinished{Result: tutti.Result{
			Run: r.Run, Outcome: tutti.Interrupted,
			Message: fmt.Sprintf("%s was set back to a state from before this run: nobody knows how far the run came", n.Node),
		}})
	}
}

// The method `moved` records that another machine has become the node since the node's last run. The server does not
// know which changes of that run are on the new machine.
func (tx *tx) moved(node tutti.NodeName) {
	last := tx.Engine.Last(node)
	// if SetBack is set, the server has recorded this already, and the node must not fill the log
	if last.Applied == nil || last.SetBack != nil {
		return
	}
	tx.Emit(core.ActorServer, &tutti.NodeSetBack{Node: node, Run: last.Applied.Run, Begun: last.Applied.Fence, Moved: true})
}

// giveUp ends a run as lost if its node cannot say whether it has begun the run. The node cannot say so if
// the run was wanted before the log was restored, and the agent keeps no fences.
func (tx *tx) giveUp(n *fold.Node) {
	r := tx.Engine.Runs[tx.Engine.Active[n.Node]]
	if r == nil || r.Fence.Epoch == tx.Engine.Epoch.Number {
		return
	}
	tx.Emit(core.ActorServer, &tutti.RunLost{
		Run: r.Run, Reason: "the server was restored in the meantime, and the agent is too old to report whether it has begun this run: upgrade tutti on " + string(n.Node),
	})
}
