package servertest

import (
	"sync"

	"github.com/tutti-project/tutti"
)

// These are the key sets of Keys.
var (
	OldKeys = tutti.KeySet{CA: tutti.DigestOf([]byte("old CA")), Issuer: "AOLD"}
	NewKeys = tutti.KeySet{CA: tutti.DigestOf([]byte("new CA")), Issuer: "ANEXT"}
)

// Keys is a server.Keys without real keys. The key sets survive a restart of the server. Keys can
// be rotated once.
type Keys struct {
	mu      sync.Mutex
	sets    tutti.KeySets
	settled int
	// If Fails is set, Rotate returns it.
	Fails error
}

// MakeKeys returns a Keys that was never rotated.
func MakeKeys() *Keys { return &Keys{sets: tutti.KeySets{Present: OldKeys}} }

// KeySets implements server.Keys.
func (k *Keys) KeySets() (tutti.KeySets, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sets, nil
}

// Rotate implements server.Keys.
func (k *Keys) Rotate(phase tutti.RotationPhase) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.Fails != nil:
		return k.Fails
	case phase == tutti.RotationFinished && k.sets.Phase != "":
		k.sets = tutti.KeySets{Present: NewKeys, Was: []tutti.Digest{OldKeys.CA}}
	case phase == tutti.RotationAbandoned:
		k.sets = tutti.KeySets{Present: OldKeys}
	case phase.Rotates():
		k.sets.Phase, k.sets.Next = phase, NewKeys
	}
	return nil
}

// Settle implements server.Keys.
func (k *Keys) Settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settled++
}

// Settled returns how often Settle was called.
func (k *Keys) Settled() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.settled
}
