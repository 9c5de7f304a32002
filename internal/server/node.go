package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/policy"
)

// nodeOp answers one operation of a node. The key is proven by the bus.
type nodeOp func(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error)

func (s *Server) nodeOps() map[string]nodeOp {
	return map[string]nodeOp{
		tutti.OpClaim:    s.claim,
		tutti.OpGate:     s.gate,
		tutti.OpAsk:      s.ask,
		tutti.OpHiera:    s.hiera,
		tutti.OpCompile:  s.compile,
		tutti.OpCompiled: s.compiledFor,
		tutti.OpPublish:  s.publish,
		tutti.OpResult:   s.result,
		tutti.OpBlobPut:  s.blobPut,
		tutti.OpCode:     s.codeGet,
		tutti.OpBeat:     s.beat,
		tutti.OpLive:     s.live,
		tutti.OpLeave:    s.leave,
		tutti.OpRenew:    s.renew,
		tutti.OpAct:      s.act,
		tutti.OpAnswer:   s.answered,
		tutti.OpForeign:  s.foreign,
		tutti.OpLease:    s.lease,
	}
}

// Handle answers a node. It fits natsbus.Handler.
func (s *Server) Handle(ctx context.Context, key tutti.NodeKey, op string, payload []byte) ([]byte, error) {
	if most := mostBytes(op); len(payload) > most {
		return nil, tutti.Errorf(tutti.CodeInvalid, "operation %q with %d bytes, at most %d", op, len(payload), most)
	}
	if op == tutti.OpBlobGet {
		return s.blobGet(ctx, key, payload)
	}
	do, ok := s.nodeOps()[op]
	if !ok {
		return nil, tutti.Errorf(tutti.CodeInvalid, "operation %q is not known to this server", op)
	}
	out, err := do(ctx, key, payload)
	if err != nil || out == nil {
		return nil, err
	}
	return json.Marshal(out)
}

func actorNode(n tutti.NodeName) string { return "node:" + string(n) }

// decode reads a message of a node; what does not fit is an error, with the
// message's name.
func decode[T any](op string, payload []byte) (T, error) {
	var in T
	err := json.Unmarshal(payload, &in)
	return in, tutti.Wrap(tutti.CodeInvalid, err, "message %q", op)
}

// node returns who owns the key.
func (tx *tx) node(key tutti.NodeKey) (*node, error) {
	n := tx.registry.byKey(key)
	if n == nil {
		err := tutti.Errorf(tutti.CodeUnauthenticated, "no node of this fleet has the key %s; it was removed or replaced: join again", key)
		return nil, tx.deny("key:"+string(key), "act as a node", err)
	}
	tx.server.presence.hear(n.Node)
	return n, nil
}

// ownRun returns the run if the node has claimed it, also if it has ended.
func (tx *tx) ownRun(n *node, id tutti.RunID) (*engine.Run, error) {
	r := tx.engine.Runs[id]
	var err error
	switch {
	case r == nil || r.Node != n.Node:
		err = tutti.Errorf(tutti.CodeRefused, "run %q is not a run of node %s", string(id), n.Node)
	case r.ClaimedAt.IsZero():
		err = tutti.Errorf(tutti.CodeRefused, "run %s was not claimed by node %s", id, n.Node)
	default:
		return r, nil
	}
	return nil, tx.deny(actorNode(n.Node), "speak for run "+string(id), err)
}

// run returns the run if the node has claimed it and it goes on.
func (tx *tx) run(n *node, id tutti.RunID) (*engine.Run, error) {
	r, err := tx.ownRun(n, id)
	if err != nil {
		return nil, err
	}
	if r.Ended() || tx.engine.Active[n.Node] != id {
		return nil, tutti.Errorf(tutti.CodeConflict, "run %s of node %s has ended: %s", id, n.Node, ending(r))
	}
	return r, nil
}

func ending(r *engine.Run) string {
	if r.Lost != "" {
		return "it was given up, " + r.Lost
	}
	return string(r.Outcome())
}

func (s *Server) claim(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if _, err := decode[tutti.Claim](tutti.OpClaim, payload); err != nil {
		return nil, err
	}
	var out tutti.Claimed
	full := s.opts.Space()
	err := s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err != nil {
			return err
		}
		out.Expect = tx.expects(n.Node)
		r := tx.engine.Runs[tx.engine.Active[n.Node]]
		if r == nil {
			return nil
		}
		if r.ClaimedAt.IsZero() && full != nil {
			return full
		}
		if r.ClaimedAt.IsZero() {
			tx.emit(actorNode(n.Node), &tutti.RunClaimed{Run: r.Run, Node: n.Node})
		}
		order := r.Order
		out.Order = &order
		return nil
	})
	return out, err
}

// expects says what may follow on a node.
func (tx *tx) expects(node tutti.NodeName) tutti.Expectation {
	switch {
	case tx.engine.Expects(node, tx.member):
		return tutti.ExpectTurn
	case tx.fleet().Reaction != nil:
		return tutti.ExpectChange
	}
	return tutti.ExpectNothing
}

// connected reports whether a node was heard of within the deadline.
func (s *Server) connected(seen, now time.Time) bool {
	return !seen.IsZero() && now.Sub(seen) < s.opts.Silence
}

// has is what a node has to run with.
func (tx *tx) has(name tutti.NodeName) converge.Has {
	_, beat := tx.server.presence.last(name)
	return converge.Has{Puppet: beat.Puppet, Program: tx.programOf(name), Recorded: policy.Compiles(tx.fleet())}
}

// programOf is the Puppet program by which a node runs where no step says otherwise.
func (tx *tx) programOf(name tutti.NodeName) tutti.Program {
	n := tx.registry.nodes[name]
	if tx.registry.fleet == nil || n == nil {
		return tutti.ProgramApply
	}
	return tx.registry.fleet.ProgramOf(tx.registry.groups(n))
}
