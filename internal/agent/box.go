package agent

import (
	"context"
	"crypto/ecdh"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	sealing "github.com/tutti-project/tutti/internal/seal" // the import has another name, because this package has a function `seal` for the agent's own files
	"github.com/tutti-project/tutti/wire"
)

// Boxes contains the keys to which other machines seal this node's secrets.
type Boxes interface {
	Keys() []*ecdh.PrivateKey // all keys that may open a secret, with the present key first
	Pending() bool            // reports whether there is a next key
	Next() (*ecdh.PrivateKey, error)
	Switch() error // makes the next key the present one
}

const (
	// boxTries is how often the node tries to seal its secrets to its next key. A try fails if secrets change during
	// the try.
	boxTries = 10
	// retryBox is the wait before the first retry after a start. The longest wait is maxRetryBox. The
	// server accepts only a few keys from one node in an hour.
	retryBox    = time.Second
	maxRetryBox = time.Minute
)

// finishBox completes the rotation that an earlier agent did not finish.
func (a *Agent) finishBox(ctx context.Context) {
	wait := retryBox
	for said := false; a.opts.Boxes != nil && a.opts.Boxes.Pending(); wait = min(2*wait, maxRetryBox) {
		err := a.rotateBox(ctx)
		if err == nil {
			return
		}
		if !said {
			a.opts.Logger.Warn("the node's next key for secrets is not in use yet", "error", err)
			said = true
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// rotateBox gives the node another key for its secrets. The method seals all secrets of the node to the next key, and
// sends the key and the secrets together. No secret changes, and no run waits. After a crash at any point, the node
// still has a key that opens its secrets.
func (a *Agent) rotateBox(ctx context.Context) error {
	if a.opts.Boxes == nil {
		return tutti.Errorf(tutti.CodeRefused, "this node has no key for secrets")
	}
	a.boxing.Lock()
	defer a.boxing.Unlock()
	next, err := a.opts.Boxes.Next()
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := a.offerBox(ctx, next)
		if err == nil {
			break
		}
		if tutti.CodeOf(err) != tutti.CodeConflict || try == boxTries {
			return err
		}
	}
	killpoint.Here("agent.box-taken")
	return a.opts.Boxes.Switch()
}

func (a *Agent) offerBox(ctx context.Context, next *ecdh.PrivateKey) error {
	own, err := call[wire.OwnPieces](ctx, a, wire.OpPieces, struct{}{})
	if err != nil {
		return err
	}
	in := wire.NewBox{BoxKey: sealing.PublicKey(next), Pieces: []wire.OwnPiece{}}
	for _, p := range own.Pieces {
		clear, _, err := a.open(tutti.Secret{Key: p.Key, ID: p.ID}.Value(p.Sealed), true)
		if err != nil { // the publisher may have sealed the secret in a wrong way; then the secret stays unchanged
			a.opts.Logger.Warn("a secret that is sealed to this node cannot be opened, and stays unchanged", "key", p.Key, "error", err)
			in.Pieces = append(in.Pieces, p)
			continue
		}
		if p.Sealed, err = sealing.ToNode(tutti.SecretText{Key: p.Key, ID: p.ID, Value: clear}, in.BoxKey); err != nil {
			return err
		}
		in.Pieces = append(in.Pieces, p)
	}
	_, err = call[struct{}](ctx, a, wire.OpBox, in)
	return err
}
