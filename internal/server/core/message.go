package core

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

const (
	// MaxBlob bounds one piece of content (a file of code, a gate, a report), in bytes.
	MaxBlob = 64 << 20
	// MaxCodeFiles bounds the files of one manifest of code.
	MaxCodeFiles = 200_000
)

// OrMissing is the error after a look for content that was not found: err, or CodeConflict if err is nil.
func OrMissing(err error) error {
	if err != nil {
		return err
	}
	return tutti.Errorf(tutti.CodeConflict, "the server does not have it; send it first")
}

// OpKey is the context's key for the operation that a node's message names.
type OpKey struct{}

// tells are the operations with which a node says what was done on it.
var tells = []string{wire.OpResult, wire.OpForeign, wire.OpBlobPut, wire.OpPublish, wire.OpFacts, wire.OpLive}

// refusalOf is the code that answers a message from a machine that is not the node now. On an operation in tells, the machine
// then keeps the message and sends it again: an operator may decide that this machine is the node.
func refusalOf(ctx context.Context) tutti.Code {
	if op, _ := ctx.Value(OpKey{}).(string); slices.Contains(tells, op) {
		return tutti.CodeUnauthenticated
	}
	return tutti.CodeRefused
}

// Decode reads a message of a node. The error for a message that does not fit names the
// operation.
func Decode[T any](op string, payload []byte) (T, error) {
	var in T
	err := json.Unmarshal(payload, &in)
	return in, tutti.Wrap(tutti.CodeInvalid, err, "message %q", op)
}
