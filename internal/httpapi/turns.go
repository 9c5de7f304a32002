package httpapi

import "context"

// turns lets few handshakes compute at the same time. A handshake computes after it has received something, until it
// sends something or waits for the client again. A client can make the server compute more than once: the server can
// ask for a second hello. The methods do nothing if the receiver is nil.
type turns struct {
	ctx    context.Context // of the handshake
	places chan struct{}
	has    bool // this handshake has a place
}

// computes waits for a place. The method returns the cause if the handshake ends before that.
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

// waits frees the place of the handshake.
func (t *turns) waits() {
	if t != nil && t.has {
		<-t.places
		t.has = false
	}
}
