package nodes

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// factsEvery is how often a node may report changed facts without a run.
const factsEvery = 10 * time.Second

// The method `facts` handles a message in which a node reports that its facts have changed since
// its last run. The method ignores known facts and the facts of an earlier run.
func (s *Nodes) facts(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[tutti.FactsSeen](wire.OpFacts, payload)
	if err == nil {
		err = in.Validate()
	}
	if err != nil {
		return nil, err
	}
	for i, name := range in.Changed {
		in.Changed[i] = plain.Words(name)
	}
	return nil, s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		if r := tx.Engine.Runs[in.Run]; r != nil && r.Node != n.Node {
			return tx.Deny(tutti.ActorNode(n.Node), "speak for run "+string(in.Run),
				tutti.Errorf(tutti.CodeRefused, "run %s is not a run of node %s", in.Run, n.Node))
		}
		if run := tx.Engine.Active[n.Node]; run != "" { // do not wait for the facts of this run: it may never begin to apply
			return tutti.Errorf(tutti.CodeUnavailable, "run %s of node %s has not ended: report facts after its end", run, n.Node)
		}
		body := tx.Engine.Tell(n.Node, in, tx.Now)
		if body == nil {
			return nil
		}
		if f := tx.Engine.Facts(n.Node); f != nil && f.Run == in.Run {
			// a negative time means that the server's clock was set back
			if since := tx.Now.Sub(f.At); since >= 0 && since < factsEvery {
				return tutti.Errorf(tutti.CodeUnavailable, "node %s has reported its facts %s ago: it may report facts once in %s", n.Node, since.Round(time.Second), factsEvery)
			}
		}
		if err := tx.Core.Opts.Space(); err != nil {
			return err
		}
		tx.Emit(tutti.ActorNode(n.Node), body)
		return nil
	})
}
