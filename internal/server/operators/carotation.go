package operators

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// An operator rotates the CA and the keys of the bus in steps (ADR 0027). The server first appends a step to the
// log and then changes the keys. If a step was interrupted, the server completes the step at its next start.

// RotateCA implements tutti.Rotations.
func (s *Keys) RotateCA(ctx context.Context, in api.RotateCA) (api.CARotation, error) {
	if s.Opts.Keys == nil {
		return api.CARotation{}, tutti.Errorf(tutti.CodeInvalid, "this server's keys cannot be rotated")
	}
	if err := s.Opts.Space(); err != nil {
		return api.CARotation{}, err
	}
	s.rotating.Lock()
	defer s.rotating.Unlock()
	if in.Step == tutti.RotationBegin {
		if err := s.makeKeys(ctx); err != nil {
			return api.CARotation{}, err
		}
	}
	sets, err := s.Opts.Keys.KeySets()
	if err != nil {
		return api.CARotation{}, err
	}
	var phase tutti.RotationPhase
	var nodes []tutti.NodeKey
	err = s.lasting(ctx, "rotate the keys of the server", func(tx *tx) error {
		next, changes, err := tx.rotate(in, sets)
		if err != nil {
			return err
		}
		if phase = next.Phase; changes {
			tx.rotated(tutti.Actor(ctx), next)
		}
		for _, n := range tx.Registry.Nodes {
			nodes = append(nodes, n.Key)
		}
		return nil
	})
	if err != nil {
		return api.CARotation{}, err
	}
	if phase == tutti.RotationFinished {
		s.Access.Forget()
	}
	killpoint.Here("server.rotates", string(phase))
	if err := s.Opts.Keys.Rotate(phase); err != nil {
		return api.CARotation{}, tutti.Wrap("", err, "the log says that the rotation is %s, but the keys did not follow; repeat the command, or restart the server", phase)
	}
	killpoint.Here("server.rotated", string(phase))
	for _, key := range nodes {
		if err := s.Opts.Bus.Ring(key, wire.RingTrust, nil); err != nil {
			s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err) // the node asks when it connects
		}
	}
	out, err := s.ShowCARotation(ctx)
	if phase == tutti.RotationFinished && sets.Phase != "" {
		s.Opts.Keys.Settle()
	}
	return out, err
}

// makeKeys makes the next key set, if there is none yet. The key set is on disk before the log mentions it.
func (s *Keys) makeKeys(ctx context.Context) error {
	var phase tutti.RotationPhase
	err := s.Look(ctx, func(v explain.View) error { phase = v.Registry.Rotation.Phase(); return nil })
	if err != nil || phase.Rotates() {
		return err
	}
	return s.Opts.Keys.Rotate(tutti.RotationBegun)
}

// The method `rotate` returns the event of a step, and whether the step changes anything.
func (tx *tx) rotate(in api.RotateCA, sets tutti.KeySets) (next *tutti.CARotated, changes bool, err error) {
	for _, name := range in.Leave {
		if tx.Registry.Nodes[name] == nil {
			return nil, false, tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti rotate ca --status", string(name))
		}
	}
	for _, name := range in.LeaveOperators {
		if tx.Registry.Operators[name] == nil {
			return nil, false, tutti.Errorf(tutti.CodeNotFound, "no operator %q; see: tutti rotate ca --status", name)
		}
	}
	last := tx.Registry.Rotation.Last
	now := tx.Registry.Rotation.Phase()
	if in.Step == tutti.RotationBegin {
		if now.Rotates() {
			return last, false, nil
		}
		return &tutti.CARotated{Phase: tutti.RotationBegun, From: sets.Present, To: sets.Next}, true, nil
	}
	to, ends, err := leadsTo(in.Step, now)
	switch {
	case err != nil:
		return nil, false, err
	case to == now:
		return last, false, nil
	}
	next = &tutti.CARotated{Phase: to, From: last.From, To: last.To}
	if !ends {
		return next, true, nil
	}
	nodes, operators := tx.behind(last, next.Stays())
	if left := unnamed(in, nodes, operators); len(left) > 0 {
		if in.Step == tutti.RotationAbandon && now == tutti.RotationSwitched {
			next.Phase = tutti.RotationReturning
			return next, true, nil
		}
		return nil, false, tutti.Errorf(tutti.CodeConflict, "%d would be locked out: %s; wait for them, or name each one with --leave NODE or --leave-operator NAME; see: tutti rotate ca --status",
			len(left), listOf(left))
	}
	for _, b := range nodes {
		next.Left = append(next.Left, b.Node)
	}
	for _, b := range operators {
		next.LeftOperators = append(next.LeftOperators, b.Operator)
	}
	if !in.Last && len(next.LeftOperators) > 0 {
		return next, true, tx.othersFollow(next.LeftOperators)
	}
	return next, true, nil
}

// othersFollow refuses to end a key set if, according to the log, no operator or no admin would then have a valid
// certificate.
func (tx *tx) othersFollow(left []string) error {
	var follow, admin bool
	for name, op := range tx.Registry.Operators {
		if len(op.Good(tx.Now)) == 0 || slices.Contains(left, name) {
			continue
		}
		follow = true
		admin = admin || policy.MayOperate(tx.Fleet(), name, policy.Wish{Verbs: []tutti.Verb{tutti.VerbAdmin}}) == nil
	}
	switch {
	case !follow:
		return tutti.Errorf(tutti.CodeConflict, "after this nobody is known to have a certificate; then only root on the server can connect, through the local socket; to do it anyway, add --last")
	case !admin:
		return tutti.Errorf(tutti.CodeConflict, "after this no admin has a valid certificate; then only root on the server can change the fleet file, through the local socket; to do it anyway, add --last")
	}
	return nil
}

// leadsTo returns the phase to which a step leads, and whether the step ends a key set.
func leadsTo(step tutti.RotationStep, now tutti.RotationPhase) (to tutti.RotationPhase, ends bool, err error) {
	conflict := func(format string, args ...any) error { return tutti.Errorf(tutti.CodeConflict, format, args...) }
	switch {
	case step == tutti.RotationFinish && now == tutti.RotationFinished, step == tutti.RotationAbandon && now == tutti.RotationAbandoned:
		return now, false, nil
	case step != tutti.RotationSwitch && step != tutti.RotationFinish && step != tutti.RotationAbandon:
		return "", false, tutti.Errorf(tutti.CodeInvalid, "no step %q of a rotation", string(step))
	case !now.Rotates():
		return "", false, conflict("no rotation goes on; begin one with: tutti rotate ca")
	case step == tutti.RotationSwitch:
		return tutti.RotationSwitched, false, nil
	case step == tutti.RotationAbandon:
		return tutti.RotationAbandoned, true, nil
	case now != tutti.RotationSwitched:
		return "", false, conflict("the old keys still issue certificates; first run: tutti rotate ca --switch")
	}
	return tutti.RotationFinished, true, nil
}

// The function `unnamed` returns the names, for people, of the nodes and operators that have not followed the
// rotation, except those that the request names.
func unnamed(in api.RotateCA, nodes, operators []api.BehindRotation) []string {
	var out []string
	for _, b := range nodes {
		if !slices.Contains(in.Leave, b.Node) {
			out = append(out, "node "+string(b.Node))
		}
	}
	for _, b := range operators {
		if !slices.Contains(in.LeaveOperators, b.Operator) {
			out = append(out, "operator "+b.Operator)
		}
	}
	return out
}

// listOf returns a text with the first few names.
func listOf(names []string) string {
	const most = 10
	text := ""
	for i, name := range names[:min(len(names), most)] {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// The method `rotated` appends the event of a step. If the step ends the old CA, the method also revokes the unused
// join tokens, because they name this CA.
func (tx *tx) rotated(by string, next *tutti.CARotated) {
	if next.Phase == tutti.RotationFinished {
		for _, id := range slices.Sorted(maps.Keys(tx.Registry.Tokens)) {
			if t := tx.Registry.Tokens[id]; t.Left() > 0 && tx.Now.Before(t.Expires) {
				tx.Emit(by, &tutti.TokenRevoked{Token: id})
			}
		}
	}
	tx.Emit(by, next)
}

// The method `behind` returns the nodes and operators that could no longer connect if the argument `stays` were the
// only key set. The method sorts the nodes and operators by name.
func (tx *tx) behind(r *tutti.CARotated, stays tutti.KeySet) (nodes, operators []api.BehindRotation) {
	return behindOf(tx.State, tx.Core.Presence, tx.Now, r, stays)
}

func behindOf(state *fold.State, present explain.Present, now time.Time, r *tutti.CARotated, stays tutti.KeySet) (nodes, operators []api.BehindRotation) {
	for _, name := range slices.Sorted(maps.Keys(state.Registry.Nodes)) {
		n := state.Registry.Nodes[name]
		follows := n.Pinned.Issuer == stays.Issuer && slices.Contains(n.Pinned.CAs, stays.CA)
		if n.Pinned.Issuer == "" { // an old agent, or a node that has joined and has not reported yet
			follows = stays == r.From && n.JoinedAt.Before(state.Registry.Rotation.Began)
		}
		if !follows {
			nodes = append(nodes, behindNode(present, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(state.Registry.Operators)) {
		op := state.Registry.Operators[name]
		signer := op.CA
		if signer == "" {
			signer = r.From.CA
		}
		if len(op.Good(now)) > 0 && signer != stays.CA {
			operators = append(operators, api.BehindRotation{Operator: name, Why: "the latest certificate is from the CA that will end; any command of the operator renews it"})
		}
	}
	return nodes, operators
}

func behindNode(present explain.Present, name tutti.NodeName) api.BehindRotation {
	seen, beat := present.Last(name)
	out := api.BehindRotation{Node: name, SeenAt: seen.UTC(), Why: "the node has not followed yet"}
	switch {
	case slices.Contains(present.Lacks(name), tutti.CapabilityRotateCA):
		out.Why = tutti.TooOld(name, beat.Version, []tutti.Capability{tutti.CapabilityRotateCA}) + ", or let it join again"
	case seen.IsZero():
		out.SeenAt, out.Why = time.Time{}, "the server has not heard of the node since it was started"
	}
	return out
}

// ShowCARotation implements tutti.Rotations.
func (s *Keys) ShowCARotation(ctx context.Context) (api.CARotation, error) {
	var out api.CARotation
	if s.Opts.Keys == nil {
		return out, nil
	}
	sets, err := s.Opts.Keys.KeySets()
	if err != nil {
		return out, err
	}
	err = s.Look(ctx, func(v explain.View) error {
		rotation := v.Registry.Rotation
		out = api.CARotation{Phase: rotation.Phase(), Since: rotation.At, CA: sets.Present.CA, Nodes: len(v.Registry.Nodes)}
		for _, op := range v.Registry.Operators {
			if len(op.Good(v.Now)) > 0 {
				out.Operators++
			}
		}
		switch last := rotation.Last; {
		case last == nil:
		case last.Phase == tutti.RotationBegun:
			out.Next = last.To.CA
			for _, b := range unpinned(v, last.To.CA) {
				out.Behind = append(out.Behind, behindNode(v.Present, b))
			}
		case last.Phase.Rotates():
			out.Next = last.To.CA
			stays := last.To
			if last.Phase == tutti.RotationReturning {
				stays = last.From
			}
			nodes, operators := behindOf(v.State, v.Present, v.Now, last, stays)
			out.Behind = slices.Concat(nodes, operators)
		default:
			out.Left, out.LeftOperators = left(v.State, last)
		}
		if out.Behind = append(out.Behind, strange(v.State, sets, out.Phase)...); out.Phase.Rotates() {
			out.Behind = append(out.Behind, s.Access.Unknowns()...)
		}
		return nil
	})
	return out, err
}

// The function `unpinned` returns the nodes that do not trust a CA yet, sorted by name.
func unpinned(v explain.View, ca tutti.Digest) []tutti.NodeName {
	var out []tutti.NodeName
	for _, name := range slices.Sorted(maps.Keys(v.Registry.Nodes)) {
		if !slices.Contains(v.Registry.Nodes[name].Pinned.CAs, ca) {
			out = append(out, name)
		}
	}
	return out
}

// The function `left` returns the nodes and operators that were left behind at the end of a rotation, and that have
// not joined again or got a new certificate since.
func left(state *fold.State, last *tutti.CARotated) (nodes []tutti.NodeName, operators []string) {
	for _, name := range last.Left {
		if n := state.Registry.Nodes[name]; n != nil && n.Pinned.Issuer != last.Stays().Issuer && n.JoinedAt.Before(state.Registry.Rotation.At) {
			nodes = append(nodes, name)
		}
	}
	for _, name := range last.LeftOperators {
		if op := state.Registry.Operators[name]; op != nil && len(op.Serials) == 0 {
			operators = append(operators, name)
		}
	}
	return nodes, operators
}

// The function `strange` returns the nodes that trust a CA which the server does not use now.
func strange(state *fold.State, sets tutti.KeySets, phase tutti.RotationPhase) []api.BehindRotation {
	var out []api.BehindRotation
	for _, name := range slices.Sorted(maps.Keys(state.Registry.Nodes)) {
		for _, ca := range state.Registry.Nodes[name].Pinned.CAs {
			switch {
			case slices.Contains(sets.Trusted(), ca):
				continue
			case slices.Contains(sets.Was, ca) || phase == tutti.RotationAbandoned && ca == state.Registry.Rotation.Last.To.CA:
				out = append(out, api.BehindRotation{Node: name, Why: "the node still trusts a CA that has ended; it forgets this CA when it connects"})
			default:
				out = append(out, api.BehindRotation{Node: name, Foreign: true, Why: "it trusts the CA " + string(ca) + ", which was never a CA of this server: treat the node as taken over"})
			}
			break
		}
	}
	return out
}
