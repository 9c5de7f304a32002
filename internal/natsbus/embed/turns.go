package embed

import (
	"crypto/tls"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// brokenAfter is how long a handshake may keep its place. A handshake computes for about a millisecond. If a client
// sends a wrong hello, its handshake ends, but package tls calls no function that could free the place.
const brokenAfter = 100 * time.Millisecond

// turns limits how many TLS handshakes compute at the same time: one for every two processors. Without this limit,
// strangers could use all processors of the server. A handshake computes from the client's hello until the server has
// sent its answer.
type turns struct {
	places chan struct{}
	broken time.Duration
}

func newTurns() *turns {
	return &turns{places: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), broken: brokenAfter}
}

// The method `bound` returns a copy of a configuration in which each handshake waits for a place. The wait takes at
// most helloTimeout.
func (t *turns) bound(config *tls.Config) *tls.Config {
	out := config.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		give, err := t.take()
		if err != nil {
			return nil, err
		}
		own := config.Clone()
		own.VerifyConnection = func(tls.ConnectionState) error { // called after the server has sent its answer
			give()
			return nil
		}
		return own, nil
	}
	return out
}

// The method `take` waits for a place, and returns the function that frees the place.
func (t *turns) take() (give func(), err error) {
	late := time.NewTimer(helloTimeout)
	defer late.Stop()
	select {
	case t.places <- struct{}{}:
	case <-late.C:
		return nil, tutti.Errorf(tutti.CodeUnavailable, "too many TLS handshakes: no place after %s", helloTimeout)
	}
	free := sync.OnceFunc(func() { <-t.places })
	broken := time.AfterFunc(t.broken, free)
	return func() {
		broken.Stop()
		free()
	}, nil
}
