package core

import (
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

// LocalOperator is the name of an operator who connects through the server's own socket.
const LocalOperator = "local"

// The type `access` knows which operators may connect, and which of their requests are open now. The type follows the
// log outside the writer, so that a refused request does not load the writer.
type access struct {
	mu        *sync.Mutex
	operators fold.Operators
	fleet     *tutti.Fleet // only the part of the fleet file about who may do what
	rotates   *bool        // true while the keys are being rotated
	inside    map[*Visit]bool
	// operator → a certificate that the operator showed during a rotation and that the log does not know
	strange map[string]string
}

// maxStrange is the largest number of operators for which the server keeps an unknown
// certificate.
const maxStrange = 100

// The method `note` keeps the certificate of a visit during a rotation if the log does not know this certificate. The
// caller holds the lock.
func (a access) note(v *Visit) {
	now := time.Now()
	if !*a.rotates || a.operators.Admit(v.Name, v.Serial, now) != nil || a.operators[v.Name].Knows(v.Serial, now) {
		return
	}
	if len(a.strange) < maxStrange || a.strange[v.Name] != "" {
		a.strange[v.Name] = v.Serial
	}
}

// Forget removes the certificates that the log does not know. The server calls Forget at the end of a rotation.
func (a access) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.strange)
}

// Unknowns returns the certificates that the log does not know, with an explanation for
// people.
func (a access) Unknowns() []api.BehindRotation {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []api.BehindRotation
	for _, name := range slices.Sorted(maps.Keys(a.strange)) {
		out = append(out, api.BehindRotation{Operator: name, Why: "the log does not know the certificate " + a.strange[name] +
			", so this certificate may not follow the rotation; if the operator owns it, run: tutti operator create " + name + "; if not, somebody has the server's keys"})
	}
	return out
}

// Visit is one request of an operator.
type Visit struct {
	Name, Serial string
	// The request needs one of these verbs. If the list is empty, every operator may make the request.
	verbs []tutti.Verb
	end   context.CancelCauseFunc
}

// The method `admit` refuses an operator who was revoked (CodeUnauthenticated) or has no access. During a rotation,
// the method also refuses a certificate that the log does not know (CodeRefused), because a thief of the server's
// keys can make such a certificate.
func (v *Visit) admit(operators fold.Operators, rotates bool, fleet tutti.Fleet) error {
	now := time.Now()
	if err := operators.Admit(v.Name, v.Serial, now); err != nil {
		return err
	}
	if rotates && !operators[v.Name].Knows(v.Serial, now) {
		return v.IsStrange("and the keys of the server are rotated: ")
	}
	if len(v.verbs) == 0 {
		return nil
	}
	return policy.MayOperate(fleet, v.Name, policy.Wish{Verbs: v.verbs, What: string(v.verbs[0]), Later: true})
}

// IsStrange returns the error for a visit whose certificate the log does not know.
func (v *Visit) IsStrange(when string) error {
	return tutti.Errorf(tutti.CodeRefused, "the log does not know the certificate %s of operator %s, or it has ended, %ssomebody who stole the keys could have made this certificate; "+
		"if the operator owns it, another operator or root on the server can make a new one: tutti operator create %s", v.Serial, v.Name, when, v.Name)
}

// VisitOf returns the visit to which the call belongs. VisitOf returns nil if the caller is root on the server, or
// the server itself.
func VisitOf(ctx context.Context) *Visit {
	v, _ := ctx.Value(visitKey{}).(*Visit)
	return v
}

// In returns a context of this visit.
func (v *Visit) In(ctx context.Context) context.Context { return context.WithValue(ctx, visitKey{}, v) }

type visitKey struct{}

func newAccess() access {
	return access{mu: &sync.Mutex{}, operators: fold.Operators{}, fleet: &tutti.Fleet{}, rotates: new(bool), inside: map[*Visit]bool{}, strange: map[string]string{}}
}

// Load takes operators, access and rotation from the folded log when the server starts.
func (a access) Load(from *fold.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fleet.Access, *a.rotates = from.Fleet().Access, from.Registry.Rotation.Phase().Rotates()
	for name, op := range from.Registry.Operators {
		a.operators[name] = op.Clone()
	}
}

// Apply applies events that are on disk. The server calls Apply before it answers the request that caused
// the events. If an event ends the certificate or the access of a visit, Apply ends the visit at once.
func (a access) Apply(events []tutti.Event) {
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

// Admit lets in the operator whose certificate has this serial, if the operator has one of the verbs. If
// the list of verbs is empty, every operator may come in. The caller must have checked that the certificate
// is of the server's CA. The context that Admit returns names the operator. The context ends when the
// caller calls the function `leave`, or when the operator is revoked or loses the verb. Admit returns
// CodeUnauthenticated if the operator was revoked. Admit returns CodeRefused if the operator has none of
// the verbs.
func (s *Core) Admit(ctx context.Context, name, serial string, verbs ...tutti.Verb) (inside context.Context, leave func(), err error) {
	if err := s.Writer.Begun(ctx); err != nil { // until the writer has begun, the server does not know the revocations
		return nil, nil, err
	}
	a := s.Access
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &Visit{Name: name, Serial: serial, verbs: verbs}
	if err := v.admit(a.operators, *a.rotates, *a.fleet); err != nil {
		a.note(v)
		return nil, nil, err
	}
	inside, v.end = context.WithCancelCause(v.In(tutti.WithActor(ctx, ActorOperator+name)))
	a.inside[v] = true
	return inside, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.inside, v)
		v.end(nil)
	}, nil
}

// stillIn refuses an operator who was revoked or lost access after the call of Admit. The operator can lose
// access in between because the request may have waited in the queue.
func stillIn(ctx context.Context, state *fold.State) error {
	if v := VisitOf(ctx); v != nil {
		return v.admit(state.Registry.Operators, state.Registry.Rotation.Phase().Rotates(), state.Fleet())
	}
	return nil
}

// MayOf refuses a caller who does not have this verb. MayOf checks VerbData for this key, and other
// verbs without a key.
func MayOf(ctx context.Context, state *fold.State, verb tutti.Verb, key string) error {
	v := VisitOf(ctx)
	if v == nil {
		return nil
	}
	return policy.MayOperate(state.Fleet(), v.Name, policy.Wish{Verbs: []tutti.Verb{verb}, What: string(verb), Narrow: verb == tutti.VerbData, Key: key})
}

// May refuses an action that the operator's access does not allow now, and records the refusal in the audit trail.
func (tx *Tx) May(ctx context.Context, w policy.Wish) error {
	v := VisitOf(ctx)
	if v == nil {
		return nil
	}
	w.Narrow = true
	if err := policy.MayOperate(tx.Fleet(), v.Name, w); err != nil {
		return tx.Deny(ActorOperator+v.Name, w.What, err)
	}
	return nil
}

// MayAsk calls May for a question to the Puppets of these nodes. The text `named` names the nodes.
func (tx *Tx) MayAsk(ctx context.Context, action tutti.RemoteAction, named string, nodes []tutti.NodeName) error {
	if VisitOf(ctx) == nil {
		return nil
	}
	w := policy.Wish{
		Verbs: []tutti.Verb{tutti.VerbPuppet}, What: "ask " + named + " for " + string(action), Nodes: explain.Targets(tx.State, nodes),
	}
	if action.Compiles() { // whoever may compile on a node may see what differs, or what is wrong
		w.Verbs, w.Plan, w.Noop = []tutti.Verb{tutti.VerbRun}, api.DiffPlan, true
	}
	return tx.May(ctx, w)
}

// MayChange refuses a changed fleet file if the caller is not an admin.
func (tx *Tx) MayChange(ctx context.Context, digest tutti.Digest) error {
	if digest == tx.Registry.FleetDigest {
		return nil
	}
	return tx.May(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbAdmin}, What: "push another fleet file"})
}

// MayRun calls May for a job of a plan whose steps run on these nodes.
func (tx *Tx) MayRun(ctx context.Context, what string, plan tutti.Plan, mode tutti.Mode, nodes []tutti.NodeName) error {
	if VisitOf(ctx) == nil {
		return nil
	}
	w := policy.Wish{
		Verbs: []tutti.Verb{tutti.VerbRun}, What: what, Plan: plan.Name, Noop: mode != tutti.ModeApply, Nodes: explain.Targets(tx.State, nodes),
	}
	for _, st := range plan.Steps {
		if st.Kind() == tutti.StepConverge && len(st.Converge.Only) == 0 {
			all, members := explain.Targeted(tx.State, st.Converge.Target)
			w.All, w.Nodes = w.All || all, append(w.Nodes, members...)
		}
	}
	if mode != tutti.ModeApply {
		w.What += " with --noop"
	}
	return tx.May(ctx, w)
}

// MayReplace refuses a changed fleet file if the caller is not an admin, or if no operator could replace the file
// afterwards.
func (tx *Tx) MayReplace(ctx context.Context, fleet tutti.Fleet, digest tutti.Digest) error {
	if VisitOf(ctx) == nil || digest == tx.Registry.FleetDigest {
		return nil
	}
	if err := tx.MayChange(ctx, digest); err != nil {
		return err
	}
	if len(fleet.Access) > 0 && !tx.Admins(ctx, fleet, "") {
		return tutti.Errorf(tutti.CodeConflict, "with the access of this fleet file no admin has a valid certificate; then only root on the server could change the file again, "+
			"through the local socket; add: - %s", tutti.Access{To: []string{VisitOf(ctx).Name}, May: []tutti.Verb{tutti.VerbAdmin}})
	}
	return nil
}

// Admins reports whether an admin remains if the operator `revoked` is revoked. The fleet file decides who is an
// admin, and only admins with a known valid certificate count. Admins does not check the caller's certificate again.
func (tx *Tx) Admins(ctx context.Context, fleet tutti.Fleet, revoked string) bool {
	admin := func(name string) bool { return name != revoked && isAdmin(fleet, name) }
	if v := VisitOf(ctx); v != nil && admin(v.Name) {
		return true
	}
	for name, op := range tx.Registry.Operators {
		if len(op.Good(tx.Now)) > 0 && admin(name) {
			return true
		}
	}
	return false
}

// IsAdmin reports whether the present fleet file allows an operator to do everything.
func (tx *Tx) IsAdmin(name string) bool { return isAdmin(tx.Fleet(), name) }

func isAdmin(fleet tutti.Fleet, name string) bool {
	return policy.MayOperate(fleet, name, policy.Wish{Verbs: []tutti.Verb{tutti.VerbAdmin}}) == nil
}

// ActorOperator is the prefix of operators' names in the log.
const ActorOperator = "operator:"
