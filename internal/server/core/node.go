package core

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// OpKey is of the operation that a node's message names.
type OpKey struct{}

// tells are the operations by which a node says what was done on it.
var tells = []string{wire.OpResult, wire.OpForeign, wire.OpBlobPut, wire.OpPublish, wire.OpFacts, wire.OpLive}

// refusalOf is how a message is answered that comes from a machine that is not the node, or not now. What it tells it keeps
// then, and tells again: it may be the one that is kept.
func refusalOf(ctx context.Context) tutti.Code {
	if op, _ := ctx.Value(OpKey{}).(string); slices.Contains(tells, op) {
		return tutti.CodeUnauthenticated
	}
	return tutti.CodeRefused
}

// Decode reads a message of a node; what does not fit is an error, with the
// message's name.
func Decode[T any](op string, payload []byte) (T, error) {
	var in T
	err := json.Unmarshal(payload, &in)
	return in, tutti.Wrap(tutti.CodeInvalid, err, "message %q", op)
}

// Node returns who owns the key, if the message came from the machine that is the node.
func (tx *Tx) Node(key tutti.NodeKey) (*fold.Node, error) {
	n, err := tx.KeyOwner(key)
	if err == nil {
		err = tx.fits(n)
	}
	if err != nil {
		return nil, err
	}
	tx.Core.Presence.Hear(n.Node)
	return n, nil
}

// KeyOwner returns who owns the key.
func (tx *Tx) KeyOwner(key tutti.NodeKey) (*fold.Node, error) {
	n := tx.Registry.ByKey(key)
	if n == nil {
		err := tutti.Errorf(tutti.CodeUnauthenticated, "no node of this fleet has the key %s; it was removed or replaced: join again", key)
		return nil, tx.Deny("key:"+string(key), "act as a node", err)
	}
	return n, nil
}

// HasNow is what a node has to run with.
func (tx *Tx) HasNow(name tutti.NodeName) converge.Has {
	_, beat := tx.Core.Presence.Last(name)
	has := tx.Has(name, beat.Puppet)
	has.TellsFacts = tx.Core.Presence.TellsFacts(name)
	return has
}
