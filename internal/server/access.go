package server

import (
	"context"
	"maps"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// LocalOperator is the name of whoever comes through the server's own socket.
const LocalOperator = "local"

// access is which operators may come in, and who is in. It follows the log from
// outside the writer, so that a request that is refused costs it nothing.
type access struct {
	mu        *sync.Mutex
	operators fold.Operators
	inside    map[*visit]bool
}

// visit is one request of an operator.
type visit struct {
	name, serial string
	end          context.CancelCauseFunc
}

type visitKey struct{}

func newAccess() access {
	return access{mu: &sync.Mutex{}, operators: fold.Operators{}, inside: map[*visit]bool{}}
}

// load takes what the log says at the start.
func (a access) load(from fold.Operators) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, op := range from {
		own := *op
		own.Serials = maps.Clone(op.Serials)
		a.operators[name] = &own
	}
}

// apply takes events that are on disk, before whoever asked for them is answered.
// Who is in with a certificate that they end is out at once.
func (a access) apply(events []tutti.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := false
	for _, e := range events {
		a.operators.Apply(e)
		_, revoked := e.Body.(*tutti.OperatorRevoked)
		ended = ended || revoked
	}
	if !ended {
		return
	}
	for v := range a.inside {
		if err := a.operators.Admit(v.name, v.serial); err != nil {
			v.end(err)
		}
	}
}

// Admit lets an operator in who has shown a certificate of our CA with that
// serial, and says who he is in the context that it returns. That ends with leave,
// or as soon as he is revoked. CodeUnauthenticated: he was.
func (s *Server) Admit(ctx context.Context, name, serial string) (inside context.Context, leave func(), err error) {
	select {
	case <-s.ready: // until then nobody knows who was revoked
	case <-s.ended:
		return nil, nil, errNotServing()
	case <-ctx.Done():
		return nil, nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the server to read its log")
	}
	a := s.access
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.operators.Admit(name, serial); err != nil {
		return nil, nil, err
	}
	v := &visit{name: name, serial: serial}
	inside, v.end = context.WithCancelCause(context.WithValue(tutti.WithActor(ctx, actorOperator+name), visitKey{}, v))
	a.inside[v] = true
	return inside, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.inside, v)
		v.end(nil)
	}, nil
}

// stillIn refuses an operator who was revoked after he had come in: what he asked
// for may have waited behind his revocation.
func stillIn(ctx context.Context, state *fold.State) error {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return state.Registry.Operators.Admit(v.name, v.serial)
	}
	return nil
}
