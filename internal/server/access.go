package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
)

// LocalOperator is the name of whoever comes through the server's own socket.
const LocalOperator = "local"

// access is which operators may come in, and who is in. It follows the log from
// outside the writer, so that a request that is refused costs it nothing.
type access struct {
	mu        *sync.Mutex
	operators fold.Operators
	fleet     *tutti.Fleet // as far as it says who may do what
	rotates   *bool        // the keys are
	inside    map[*visit]bool
	strange   map[string]string // operators → a certificate that the log does not know and that came in a rotation
}

// maxStrange bounds the operators of whom a certificate is named that the log does not know.
const maxStrange = 100

// note takes note of whose certificate the log does not know, if the keys are rotated. The lock is held.
func (a access) note(v *visit) {
	now := time.Now()
	if !*a.rotates || a.operators.Admit(v.name, v.serial, now) != nil || a.operators[v.name].Knows(v.serial, now) {
		return
	}
	if len(a.strange) < maxStrange || a.strange[v.name] != "" {
		a.strange[v.name] = v.serial
	}
}

// forget forgets the certificates that the log does not know, at the end of a rotation.
func (a access) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.strange)
}

// unknowns are the certificates that the log does not know, for people.
func (a access) unknowns() []api.BehindRotation {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []api.BehindRotation
	for _, name := range sorted(a.strange) {
		out = append(out, api.BehindRotation{Operator: name, Why: "the log does not know the certificate " + a.strange[name] +
			", and it may not follow: if it is the operator's own: tutti operator create " + name + "; if not, somebody has the server's keys"})
	}
	return out
}

// visit is one request of an operator.
type visit struct {
	name, serial string
	verbs        []tutti.Verb // one of which it takes; none: everybody may
	end          context.CancelCauseFunc
}

// admit refuses who was revoked (CodeUnauthenticated), who has no access, and while the keys are rotated who has a certificate
// that the log does not know (CodeRefused): whoever stole the keys can make one.
func (v *visit) admit(operators fold.Operators, rotates bool, fleet tutti.Fleet) error {
	now := time.Now()
	if err := operators.Admit(v.name, v.serial, now); err != nil {
		return err
	}
	if rotates && !operators[v.name].Knows(v.serial, now) {
		return v.isStrange("and the keys of the server are rotated: ")
	}
	if len(v.verbs) == 0 {
		return nil
	}
	return policy.MayOperate(fleet, v.name, policy.Wish{Verbs: v.verbs, What: string(v.verbs[0]), Later: true})
}

// isStrange refuses a visit because the log does not know its certificate.
func (v *visit) isStrange(when string) error {
	return tutti.Errorf(tutti.CodeRefused, "the log does not know the certificate %s of operator %s, or it has ended, %ssomebody who stole the keys could have made it; "+
		"if it is the operator's own, another operator or root on the server makes a new one: tutti operator create %s", v.serial, v.name, when, v.name)
}

// visitOf is the visit on whose behalf something is done; nil: that of root on the server, or the server's own.
func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

type visitKey struct{}

func newAccess() access {
	return access{mu: &sync.Mutex{}, operators: fold.Operators{}, fleet: &tutti.Fleet{}, rotates: new(bool), inside: map[*visit]bool{}, strange: map[string]string{}}
}

// load takes what the log says at the start.
func (a access) load(from *fold.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fleet.Access, *a.rotates = from.Fleet().Access, from.Registry.Rotation.Phase().Rotates()
	for name, op := range from.Registry.Operators {
		a.operators[name] = op.Clone()
	}
}

// apply takes events that are on disk, before whoever asked for them is answered.
// Who is in with a certificate, or an access, that they end is out at once.
func (a access) apply(events []tutti.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := false
	for _, e := range events {
		a.operators.Apply(e)
		switch b := e.Body.(type) {
		case *tutti.OperatorIssued:
			delete(a.strange, b.Operator)
		case *tutti.OperatorRevoked:
			delete(a.strange, b.Operator)
			ended = true
		case *tutti.CARotated:
			*a.rotates, ended = b.Phase.Rotates(), true
		case *tutti.FleetSet:
			a.fleet.Access, ended = b.Fleet.Access, true
		}
	}
	if !ended {
		return
	}
	for v := range a.inside {
		if err := v.admit(a.operators, *a.rotates, *a.fleet); err != nil {
			a.note(v)
			v.end(err)
		}
	}
}

// Admit lets an operator in who has shown a certificate of our CA with that
// serial and has one of the verbs (none: everybody has), and says who he is in the context that it returns. That ends
// with leave, or as soon as he is revoked or has lost the verb. CodeUnauthenticated: he was revoked. CodeRefused: he has
// none of the verbs.
func (s *Server) Admit(ctx context.Context, name, serial string, verbs ...tutti.Verb) (inside context.Context, leave func(), err error) {
	if err := s.writer.Begun(ctx); err != nil { // until then nobody knows who was revoked
		return nil, nil, err
	}
	a := s.access
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &visit{name: name, serial: serial, verbs: verbs}
	if err := v.admit(a.operators, *a.rotates, *a.fleet); err != nil {
		a.note(v)
		return nil, nil, err
	}
	inside, v.end = context.WithCancelCause(context.WithValue(tutti.WithActor(ctx, actorOperator+name), visitKey{}, v))
	a.inside[v] = true
	return inside, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.inside, v)
		v.end(nil)
	}, nil
}

// stillIn refuses an operator who was revoked, or has lost his access, after he had come in: what he asked
// for may have waited behind that.
func stillIn(ctx context.Context, state *fold.State) error {
	if v := visitOf(ctx); v != nil {
		return v.admit(state.Registry.Operators, state.Registry.Rotation.Phase().Rotates(), state.Fleet())
	}
	return nil
}

// mayOf refuses whoever asks and has no access for a key (VerbData), or another one for anything.
func mayOf(ctx context.Context, state *fold.State, verb tutti.Verb, key string) error {
	v := visitOf(ctx)
	if v == nil {
		return nil
	}
	return policy.MayOperate(state.Fleet(), v.name, policy.Wish{Verbs: []tutti.Verb{verb}, What: string(verb), Narrow: verb == tutti.VerbData, Key: key})
}

// may refuses what an operator's access does not allow, in the state of now, and puts that into the audit trail.
func (tx *tx) may(ctx context.Context, w policy.Wish) error {
	v := visitOf(ctx)
	if v == nil {
		return nil
	}
	w.Narrow = true
	if err := policy.MayOperate(tx.Fleet(), v.name, w); err != nil {
		return tx.deny(actorOperator+v.name, w.What, err)
	}
	return nil
}

// mayRun is may for a job of a plan whose steps run on these nodes.
func (tx *tx) mayRun(ctx context.Context, what string, plan tutti.Plan, mode tutti.Mode, nodes []tutti.NodeName) error {
	if visitOf(ctx) == nil {
		return nil
	}
	w := policy.Wish{
		Verbs: []tutti.Verb{tutti.VerbRun}, What: what, Plan: plan.Name, Noop: mode != tutti.ModeApply, Nodes: explain.Targets(tx.State, nodes),
	}
	for _, st := range plan.Steps {
		if st.Kind() == tutti.StepConverge {
			all, members := explain.Targeted(tx.State, st.Converge.Target)
			w.All, w.Nodes = w.All || all, append(w.Nodes, members...)
		}
	}
	if mode != tutti.ModeApply {
		w.What += " with --noop"
	}
	return tx.may(ctx, w)
}

// mayReplace refuses another fleet file than the one that is there from whoever is not an admin, and one after which no operator
// could replace it again.
func (tx *tx) mayReplace(ctx context.Context, fleet tutti.Fleet, digest tutti.Digest) error {
	if visitOf(ctx) == nil || digest == tx.Registry.FleetDigest {
		return nil
	}
	if err := tx.may(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbAdmin}, What: "push another fleet file"}); err != nil {
		return err
	}
	if len(fleet.Access) > 0 && !tx.admins(ctx, fleet, "") {
		return tutti.Errorf(tutti.CodeConflict, "by the access of this fleet file nobody who has a good certificate is admin; then only root on the server could change it again, "+
			"by its local socket; add: - %s", tutti.Access{To: []string{visitOf(ctx).name}, May: []tutti.Verb{tutti.VerbAdmin}})
	}
	return nil
}

// admins reports whether somebody but revoked is known to have a good certificate, and is admin by a fleet file. Who
// asks, by what name ever, is there.
func (tx *tx) admins(ctx context.Context, fleet tutti.Fleet, revoked string) bool {
	admin := func(name string) bool {
		return name != revoked && policy.MayOperate(fleet, name, policy.Wish{Verbs: []tutti.Verb{tutti.VerbAdmin}}) == nil
	}
	if v := visitOf(ctx); v != nil && admin(v.name) {
		return true
	}
	for name, op := range tx.Registry.Operators {
		if len(op.Good(tx.Now)) > 0 && admin(name) {
			return true
		}
	}
	return false
}

// sorted returns the keys of a map in order.
func sorted[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }
