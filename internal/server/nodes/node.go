package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/wire"
)

// nodeOp handles one operation of a node. The bus has checked that the sender has the key.
type nodeOp func(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error)

func (s *Nodes) nodeOps() map[string]nodeOp {
	return map[string]nodeOp{
		wire.OpHello:    s.hello,
		wire.OpClaim:    s.claim,
		wire.OpGate:     s.gate,
		wire.OpAsk:      s.answer,
		wire.OpHiera:    s.hiera,
		wire.OpCompile:  s.beginServed,
		wire.OpCompiled: s.servedCatalog,
		wire.OpPublish:  s.publish,
		wire.OpResult:   s.result,
		wire.OpBlobPut:  s.blobPut,
		wire.OpCode:     s.codeGet,
		wire.OpBeat:     s.beat,
		wire.OpLive:     s.live,
		wire.OpLeave:    s.leave,
		wire.OpRenew:    s.renew,
		wire.OpAct:      s.act,
		wire.OpAnswer:   s.answered,
		wire.OpForeign:  s.foreign,
		wire.OpLease:    s.lease,
		wire.OpFacts:    s.facts,

		wire.OpInventory:  s.inventory,
		wire.OpRecipients: s.recipients,
		wire.OpPieces:     s.pieces,
		wire.OpBox:        s.box,
		wire.OpTrust:      s.trust,
	}
}

// Handle handles a message of a node and returns the answer. Handle has the type natsbus.Handler.
func (s *Nodes) Handle(ctx context.Context, key tutti.NodeKey, op string, payload []byte) ([]byte, error) {
	if most := mostBytes(op); len(payload) > most {
		return nil, tutti.Errorf(tutti.CodeInvalid, "operation %q with %d bytes, at most %d", op, len(payload), most)
	}
	if err := checkParts(op, payload); err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, core.OpKey{}, op)
	if op != wire.OpHello && !s.Presence.Fits(key, wire.TicketOf(ctx)) {
		err := s.do(ctx, func(tx *tx) error {
			_, err := tx.Node(key) // tx.Node returns why the ticket does not fit
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if op == wire.OpBlobGet {
		return s.blobGet(ctx, key, payload)
	}
	if cost := price(op, len(payload)); cost > 0 {
		if err := s.Shares.Pay(key, cost, time.Now()); err != nil {
			return nil, err
		}
	}
	do, ok := s.nodeOps()[op]
	if !ok {
		return nil, tutti.Errorf(tutti.CodeInvalid, "operation %q is not known to this server", op)
	}
	out, err := do(ctx, key, payload)
	if err != nil || out == nil {
		return nil, err
	}
	answer, is := out.(*wire.Answer)
	if !is {
		return encode(out)
	}
	raw, err := encodeAnswered(answer)
	if err == nil && len(raw) > maxAnswered {
		return nil, tooLarge(len(raw), answer.Exports)
	}
	return raw, err
}

// A node pays for a message from its share before the server reads the message. The function `price` returns how
// much the node pays for a message of this size. For questions and gates the server computes the price elsewhere. An
// operation with the price 0 is cheap, or has its own limit.
func price(op string, size int) int {
	switch op {
	case wire.OpBox, wire.OpLive, wire.OpTrust, wire.OpPieces:
		return share.CostOfQuestion(size)
	case wire.OpBlobPut, wire.OpInventory: // the server computes the digest before it knows whether the node may send the content
		return share.CostOfDigest(size)
	case wire.OpRenew:
		return share.CostOfRenewal
	case wire.OpClaim:
		return share.CostOfClaim
	}
	return 0
}

// encode is like json.Marshal, but without the escapes for HTML, which need six bytes for one
// character.
func encode(out any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(out)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// ownRun returns the run if the node has claimed it. The run may have ended.
func (tx *tx) ownRun(n *fold.Node, id tutti.RunID) (*engine.Run, error) {
	r := tx.Engine.Runs[id]
	var err error
	switch {
	// the third condition is true if another machine had this name when the run was claimed
	case r == nil || r.Node != n.Node || r.ClaimedSeq < n.Since.Seq && !r.ClaimedAt.IsZero():
		err = tutti.Errorf(tutti.CodeRefused, "run %q is not a run of node %s", string(id), n.Node)
	case r.ClaimedAt.IsZero():
		err = tutti.Errorf(tutti.CodeRefused, "run %s was not claimed by node %s", id, n.Node)
	default:
		return r, nil
	}
	return nil, tx.Deny(tutti.ActorNode(n.Node), "speak for run "+string(id), err)
}

// The method `run` returns the run if the node has claimed it and the run has not ended.
func (tx *tx) run(n *fold.Node, id tutti.RunID) (*engine.Run, error) {
	r, err := tx.ownRun(n, id)
	if err != nil {
		return nil, err
	}
	if r.Ended() || tx.Engine.Active[n.Node] != id {
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

// The method `expects` returns what the node can expect from the server next.
func (tx *tx) expects(node tutti.NodeName) wire.Expectation {
	switch {
	case tx.WhyObserved(node) != "":
		return wire.ExpectNothing
	case tx.Engine.Expects(node, tx.Runs):
		return wire.ExpectTurn
	case tx.Fleet().Reaction != nil:
		return wire.ExpectChange
	}
	return wire.ExpectNothing
}
