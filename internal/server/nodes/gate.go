package nodes

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `gate` decides whether a node may apply a compiled catalog. If the answer is go, the exports of the run
// replace all earlier exports of the node, in the same append as the decision. The exports of a noop or compile run
// go only into the overlay of its job.
func (s *runs) gate(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if err := s.beforeLarge(ctx, wire.OpGate, payload, func(tx *tx, of about) error {
		n, r, err := tx.nodeRun(key, of.Run)
		if err != nil {
			return err
		}
		return tx.mayTryAgain(key, n, r, len(payload))
	}); err != nil {
		return nil, err
	}
	if err := s.Shares.ReadGate(key, payload); err != nil {
		return nil, err
	}
	in, err := s.decodeGate(wire.OpGate, payload)
	if err != nil {
		return nil, err
	}
	if in.Exports, err = data.CheckExports("", in.Exports); err != nil {
		return nil, err
	}
	// Drop each key that no catalog can publish.
	in.Values = slices.DeleteFunc(in.Values, func(key string) bool { return tutti.ValidateKey(key) != nil })
	in, served, leave, err := s.withServed(ctx, key, in)
	if err != nil {
		return nil, err
	}
	defer leave()
	h := &handing{in, served, publishing(in.Exports, in.Values), data.NewComparison(in.Reads)}
	var out wire.Gated
	// A large gate is refused without the writer. The writer only records the refusal. A small gate goes directly
	// to the writer, which is faster than a readers' version.
	decide := s.inVersion
	if h.publishes.light(len(payload)) {
		decide = s.do
	}
	err = decide(ctx, func(tx *tx) (err error) {
		out, err = tx.atGate(key, h, nil)
		return err
	})
	if h.publishes.err != nil && len(payload) > maxSmall {
		s.Shares.Refuse(key, in.Run, len(payload))
	}
	if err != nil || out.Verdict != "" {
		return out, err
	}
	// Do not store the exports earlier: the server must not keep the exports of a refused
	// run.
	var kept handed
	if kept.set, err = s.StoreExports(ctx, s.roomOf(key, MaxStored), in.Exports); err != nil {
		return nil, err
	}
	if kept.asked, err = s.Past.StoreQuestions(ctx, s.roomOf(key, MaxStored), in.Reads, in.Keys); err != nil {
		return nil, err
	}
	err = s.do(ctx, func(tx *tx) (err error) {
		out, err = tx.atGate(key, h, &kept)
		return err
	})
	return out, err
}

// The type `handing` contains the data that a run reports at its gate. The server reads a handing outside the
// writer's queue.
type handing struct {
	wire.Gate
	served    *tutti.Served
	publishes *published
	reads     *data.Comparison
}

// The type `handed` contains the parts of a handing that the server has stored.
type handed struct {
	set   tutti.Digest // digest of the exports
	asked past.StoredQuestions
}

// atGate returns the answer of the gate. If kept is not nil, atGate records that the run has compiled. The function
// also records the decision, but not if a converge step decides later. The field in.served has the Puppet Server's
// report that was read for this gate. If the Puppet Server has replaced this report in the meantime, the node must
// ask again.
func (tx *tx) atGate(key tutti.NodeKey, in *handing, kept *handed) (wire.Gated, error) {
	n, r, err := tx.nodeRun(key, in.Run)
	if err != nil {
		return wire.Gated{}, err
	}
	if r.Gate == "" && (!r.Held() || !tx.Engine.Converges(r)) {
		if !tx.Looks && r.Served != in.served { // in a readers' version the pointers always differ, because this version is another fold
			return wire.Gated{}, tutti.Errorf(tutti.CodeUnavailable, "the Puppet Server of run %s has compiled again meanwhile", r.Run)
		}
		if err := tx.mayPublish(n, r, in.publishes); err != nil {
			return wire.Gated{}, err
		}
		if err := tx.mayRead(n, r, in.reads); err != nil {
			return wire.Gated{}, err
		}
		if kept != nil {
			tx.noteCatalog(n, r, in, *kept)
		}
	}
	if r.Compiled != nil && r.Compiled.Catalog != in.Catalog {
		err := tutti.Errorf(tutti.CodeRefused, "run %s has come to its gate a second time with another catalog: the run was begun twice", r.Run)
		return wire.Gated{}, tx.Deny(tutti.ActorNode(n.Node), "pass the gate of run "+string(r.Run)+" twice", err)
	}
	if r.Held() && tx.Engine.Converges(r) {
		return wire.Gated{Verdict: tutti.GateHold, Reason: "it is not its turn yet"}, nil
	}
	return wire.Gated{Verdict: r.Gate, Reason: r.GateWhy}, nil
}

// noteCatalog records what a run reported at its gate. If only the run's own job may see the
// exports, noteCatalog puts them into the overlay of that job. In a converge step noteCatalog
// decides nothing, because the server decides about all runs of the step together (converge.go).
func (tx *tx) noteCatalog(n *fold.Node, r *engine.Run, in *handing, kept handed) {
	by := tutti.ActorNode(n.Node)
	overlay := tx.Overlay(r)
	says := r.Publishes()
	if overlay && says {
		tx.SetExports(n, r, in.Exports, kept.set, true)
	}
	tx.Emit(by, &tutti.RunCompiled{
		Run: r.Run, Set: kept.set, CatalogReport: in.CatalogReport, Asked: kept.asked.Digest, Absent: kept.asked.Content.Absent, Reads: kept.asked.Content,
		Groups: append([]tutti.GroupName{}, tx.Registry.Groups(n)...),
	})
	if tx.Engine.Converges(r) {
		tx.Core.Admitted[n.Node] = core.Admission{Run: r.Run, Basis: in.publishes.basis}
		return
	}
	verdict := &tutti.RunGated{Run: r.Run, Verdict: tutti.GateGo, Catalog: in.Catalog, Values: in.Values}
	if why := tx.stop(n, r, in); why != "" {
		verdict.Verdict, verdict.Reason = tutti.GateStop, plain.Words(why)
	}
	if verdict.Verdict == tutti.GateGo && !overlay && says {
		tx.SetExports(n, r, in.Exports, kept.set, false)
	}
	tx.Emit(by, verdict)
}

// The method `refused` records the grants that a run lacked, if they are not recorded yet. One entry has all
// refusals of a run, so a few entries per minute are enough. Above this limit, the method records nothing, and the
// refusal is recorded when the run is refused again.
func (tx *tx) refused(r *engine.Run, wants []tutti.Grant) {
	if r == nil {
		return
	}
	all := policy.Merge(r.Wants, wants)
	switch {
	case reflect.DeepEqual(all, r.Wants):
	// a read-only transaction does not count the refusal: the writer counts and records it
	case tx.Looks || presence.MayBeRefused(tx.Core.Presence, r.Node, tx.Now):
		tx.Emit(core.ActorServer, &tutti.RunRefused{Run: r.Run, Wants: all})
	}
}

// mayRead refuses reads of values without a grant, because a node could guess a value and see from the gate's
// decision whether the guess is right. mayRead also refuses reads that would keep the writer busy for long, because
// the gate answers each read again.
func (tx *tx) mayRead(n *fold.Node, r *engine.Run, reads *data.Comparison) error {
	keys := policy.KeysOf(tx.Fleet(), tx.Registry.Groups(n), n.Node)
	for key := range reads.Keys() {
		if err := keys.MayRead(key); err != nil {
			tx.refused(r, []tutti.Grant{{Read: []string{key}}})
			return tx.Deny(tutti.ActorNode(n.Node), "read "+key, err)
		}
	}
	if reads.Cost(tx.Data, tx.Asker(r)) > maxGateCost {
		return tx.Deny(tutti.ActorNode(n.Node), "ask so much at once", tutti.Errorf(tutti.CodeRefused, "gate: to compare the reads, the server needs more than %d comparisons of exports", maxGateCost))
	}
	return nil
}

// The method `stop` returns why a run must not apply. The text is empty if the run may apply.
func (tx *tx) stop(n *fold.Node, r *engine.Run, in *handing) string {
	if j := tx.Engine.Jobs[r.Job]; j != nil && j.Halted() {
		return plain.Words(j.WhyHalted())
	}
	if why := r.Behind(); why != "" {
		return why
	}
	if changed := tx.outdated(n, r, in); changed != "" {
		return changed
	}
	if r.Mode == tutti.ModeCompile {
		return "asked only to compile"
	}
	return ""
}

// The method `outdated` names the first read whose answer has changed since the compile. The text is empty if no
// answer has changed.
func (tx *tx) outdated(n *fold.Node, r *engine.Run, in *handing) string {
	changed := in.reads.Outdated(tx.Data, tx.Asker(r))
	if len(changed) > 0 {
		return "the answer to " + changed[0].Query.String() + " has changed since it was read"
	}
	hiera := tx.Data.Hiera(n.Node)
	for _, k := range in.Keys {
		if _, found := hiera[k.Key]; found && !k.Found {
			return fmt.Sprintf("hiera key %q was absent when it was read and has a value now", k.Key)
		}
	}
	return ""
}
