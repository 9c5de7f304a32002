package httpapi

import "context"

// The type `turns` lets only a few handshakes compute at the same time. A handshake begins to compute when it has
// received data. It stops computing when it sends data or waits for more data. A client can make the server
// compute more than once: the server can ask for a second hello. If a `*turns` is nil, its methods do nothing.
type turns struct {
	ctx    context.Context // of the handshake
	places chan struct{}
	has    bool // this handshake has a place
}

// The method `computes` waits for a place. If the handshake ends before it gets a place, the method
// returns the cause.
func (t *turns) computes() error {
	if t == nil || t.has {
		return nil
	}
	select {
	case t.places <- struct{}{}:
		t.has = true
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// The method `waits` frees the place of the handshake, because the handshake will wait for the client.
func (t *turns) waits() {
	if t != nil && t.has {
		<-t.places
		t.has = false
	}
}
