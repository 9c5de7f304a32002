package nodes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/wire"
)

func (s *runs) answer(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if err := s.Shares.ReadQuestion(key, payload); err != nil {
		return nil, err
	}
	in, err := core.Decode[wire.Question](wire.OpAsk, payload)
	if err != nil {
		return nil, err
	}
	if in.Query.Kind != tutti.QueryPublished {
		in.Query, err = data.NormalQuery(in.Query)
	}
	if err != nil {
		return nil, err
	}
	var out wire.Answer
	var asker data.Asker
	return &out, s.answerBeside(ctx, key, inquiry{
		out: &out, on: in.For,
		check: func(tx *tx) (cost int, err error) {
			if asker, err = tx.mayAsk(key, in); err != nil {
				return 0, err
			}
			return tx.Data.Cost(in.Query), nil
		},
		answer: func(tx *tx) (err error) {
			out, err = tx.answer(in, asker)
			return err
		},
	})
}

// mayAsk returns the asker of a question, or refuses the question.
func (tx *tx) mayAsk(key tutti.NodeKey, in wire.Question) (data.Asker, error) {
	n, asker, err := tx.askerOf(key, in.Run, in.For)
	if err != nil {
		return asker, err
	}
	if in.Query.Kind == tutti.QueryValue {
		if err := policy.MayRead(tx.Fleet(), tx.Registry.Groups(n), n.Node, in.Query.Key); err != nil {
			if r := tx.Engine.Runs[in.Run]; r != nil && r.Node == n.Node {
				tx.refused(r, []tutti.Grant{{Read: []string{in.Query.Key}}})
			}
			return asker, tx.Deny(tutti.ActorNode(n.Node), "read "+in.Query.Key, err)
		}
	}
	if tx.Data.Cost(in.Query) > share.MaxAskCost {
		err := tutti.Errorf(tutti.CodeRefused, "collect %s: to answer, the server needs more than %d comparisons of exports", in.Query.Type, share.MaxAskCost)
		return asker, tx.Deny(tutti.ActorNode(n.Node), "ask so much at once", err)
	}
	return asker, nil
}

func (tx *tx) answer(in wire.Question, asker data.Asker) (wire.Answer, error) {
	if in.Query.Kind == tutti.QueryPublished {
		out := wire.Answer{Seq: tx.Seq}
		// QueryPublished returns only the node's own value. To read another node's value, a node
		// needs a grant and must send QueryValue.
		if v, found := tx.Data.Value(in.Query.Key); found && v.Owner == asker.Node {
			out.Found, out.Value = true, v.Value
			if sealed := tx.Data.Answer(tutti.Query{Kind: tutti.QueryValue, Key: in.Query.Key}, asker); sealed.Found {
				out.Value = sealed.Value // the sealed value contains the asking node's own piece
			}
		}
		return out, nil
	}
	a := tx.Data.Answer(in.Query, asker)
	if err := tx.handsOut(asker, in.Opens, a.Value); err != nil {
		return wire.Answer{}, err
	}
	out := wire.Answer{Found: a.Found, Value: a.Value, Exports: a.Exports, Digest: a.Digest, Seq: tx.Seq}
	if !a.Found {
		out.Awaits = tx.Awaits(in.Query, asker.Node)
	}
	if in.Stored != nil && in.Query.Kind == tutti.QueryCollect {
		out.Lags, out.Exports = tx.lags(asker, in, a.Exports), nil
	}
	return out, nil
}

// tooLarge returns the error for an answer that is too large for the bus. The function names the exporters
// whose exports are the largest part.
func tooLarge(size int, exports []tutti.Export) error {
	const named = 3
	of := map[tutti.NodeName]int{}
	for _, e := range exports {
		of[e.Node] += policy.Bytes(e)
	}
	nodes := slices.SortedFunc(maps.Keys(of), func(a, b tutti.NodeName) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	var largest []string
	for _, node := range nodes[:min(len(nodes), named)] {
		largest = append(largest, fmt.Sprintf("%s (%d bytes)", node, of[node]))
	}
	says := ""
	if len(largest) > 0 {
		says = fmt.Sprintf("; of %d exports from %d nodes, the largest are those of %s: to let a node export less, "+
			"take its grant out of the fleet file or lower its most_mib", len(exports), len(nodes), strings.Join(largest, ", "))
	}
	return tutti.Errorf(tutti.CodeInternal, "the answer has %d bytes, at most %d%s", size, maxAnswered, says)
}

// costOfKey is the cost of an answer with one hiera value, in comparisons.
const costOfKey = 10

func (s *runs) hiera(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if err := s.Shares.ReadQuestion(key, payload); err != nil {
		return nil, err
	}
	in, err := core.Decode[wire.HieraQuestion](wire.OpHiera, payload)
	if err != nil {
		return nil, err
	}
	var out wire.HieraData
	var asker data.Asker
	return &out, s.answerBeside(ctx, key, inquiry{
		out: &out, on: in.For,
		check: func(tx *tx) (cost int, err error) {
			_, asker, err = tx.askerOf(key, in.Run, in.For)
			return min(costOfKey*tx.Data.HieraCount(asker.Node), share.MaxAskCost), err
		},
		answer: func(tx *tx) error {
			out = wire.HieraData{Data: tx.Data.Hiera(asker.Node), Seq: tx.Seq, Digests: map[string]tutti.Digest{}}
			for k := range out.Data {
				a := tx.Data.Answer(tutti.Query{Kind: tutti.QueryHiera, Key: k}, asker)
				if err := tx.handsOut(asker, in.Opens, a.Value); err != nil {
					return err
				}
				out.Data[k], out.Digests[k] = a.Value, a.Digest
			}
			out.Awaits = tx.AwaitsHiera(asker.Node)
			return nil
		},
	})
}

// The method `publish` sets a value after Puppet has applied the value's resource. The method takes values only
// from the latest run of the node, even if the server has given up that run in the meantime.
func (s *runs) publish(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.Publish](wire.OpPublish, payload)
	if err != nil {
		return nil, err
	}
	if in.Secret == nil {
		in, err = data.CheckPublish(in)
	} else if err = in.Secret.Validate(); err == nil && (in.Secret.Key != in.Key || in.Withdraw || in.Value != nil) {
		err = tutti.Errorf(tutti.CodeInvalid, "secret %q: published as %q", in.Secret.Key, in.Key)
	}
	if err != nil {
		return nil, err
	}
	return nil, s.do(ctx, func(tx *tx) error {
		n, r, err := tx.nodeOwnRun(key, in.Run)
		if err != nil {
			return err
		}
		switch {
		case r.Run != n.LastClaimed:
			return tutti.Errorf(tutti.CodeConflict, "run %s of node %s is not its latest run: its values are out of date", r.Run, n.Node)
		case r.Result != nil: // nodes send the result last, so this message is late, or is a repeated one
			return tutti.Errorf(tutti.CodeConflict, "run %s of node %s has ended: it publishes nothing more", r.Run, n.Node)
		case !r.Passed() || r.Mode != tutti.ModeApply:
			return tutti.Errorf(tutti.CodeRefused, "run %s of node %s is not applying (mode %s): it publishes nothing", r.Run, n.Node, r.Mode)
		}
		if err := policy.MayWrite(tx.Fleet(), tx.Registry.Groups(n), n.Node, in.Key); err != nil {
			return tx.Deny(tutti.ActorNode(n.Node), "write "+in.Key, err)
		}
		if n.Changes >= maxChanges || n.Written+int64(in.Size()) > maxWritten {
			return tx.Deny(tutti.ActorNode(n.Node), "write so much", tutti.Errorf(tutti.CodeRefused,
				"run %s of node %s has changed values %d times, with %d bytes in all: at most %d times and %d bytes", r.Run, n.Node, n.Changes, n.Written, maxChanges, maxWritten))
		}
		if _, known := tx.Data.Value(in.Key); !known && !in.Withdraw && tx.Data.Owns(n.Node) >= maxValues {
			return tx.Deny(tutti.ActorNode(n.Node), "own so many values", tutti.Errorf(tutti.CodeRefused, "node %s has %d published values, at most %d", n.Node, maxValues, maxValues))
		}
		if in.Secret != nil {
			return tx.Seal(tutti.ActorNode(n.Node), n.Node, r, *in.Secret)
		}
		return tx.SetValue(tutti.ActorNode(n.Node), n.Node, r, in)
	})
}

// withdrawUndeclared withdraws the values that the node published earlier and that its
// catalog no longer declares. The withdrawal happens after a good, full run that is the latest run of the node.
func (tx *tx) withdrawUndeclared(n *fold.Node, r *engine.Run, result tutti.Result) {
	if !result.Outcome.Good() || !r.Passed() || !r.Full() || !r.Tells() || r.Run != n.LastClaimed {
		return
	}
	declared := map[string]bool{}
	for _, key := range r.Values {
		declared[key] = true
	}
	for _, key := range tx.Data.OwnedBy(n.Node) {
		if !declared[key] {
			tx.Emit(tutti.ActorNode(n.Node), &tutti.ValueUnset{Key: key, Owner: n.Node, Run: r.Run, Job: r.Job})
		}
	}
}

// nodeOwnRun returns the node that has the key, and the run if this node has claimed it.
// The run may have ended.
func (tx *tx) nodeOwnRun(key tutti.NodeKey, id tutti.RunID) (*fold.Node, *engine.Run, error) {
	n, err := tx.Node(key)
	if err != nil {
		return nil, nil, err
	}
	r, err := tx.ownRun(n, id)
	return n, r, err
}

// nodeRun returns the node that has the key, and its active run.
func (tx *tx) nodeRun(key tutti.NodeKey, id tutti.RunID) (*fold.Node, *engine.Run, error) {
	n, err := tx.Node(key)
	if err != nil {
		return nil, nil, err
	}
	r, err := tx.run(n, id)
	return n, r, err
}
