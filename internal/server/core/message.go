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

// OrMissing returns the error for content that was not found: err, or CodeConflict if err is nil.
func OrMissing(err error) error {
	if err != nil {
		return err
	}
	return tutti.Errorf(tutti.CodeConflict, "the server does not have this content; send it first")
}

// OpKey is the context key for the operation of a node's message.
type OpKey struct{}

// The variable `tells` is the list of the operations with which a node reports events on the node.
var tells = []string{wire.OpResult, wire.OpForeign, wire.OpBlobPut, wire.OpPublish, wire.OpFacts, wire.OpLive, wire.OpInventory}

// refusalOf returns the code with which the server refuses a message from a machine that is not the node now. For an
// operation in the list `tells`, this code makes the machine keep the message and send it again. The reason is that
// an operator may still decide that this machine is the node.
func refusalOf(ctx context.Context) tutti.Code {
	if op, _ := ctx.Value(OpKey{}).(string); slices.Contains(tells, op) {
		return tutti.CodeUnauthenticated
	}
	return tutti.CodeRefused
}

// Decode reads a message of a node. If the message cannot be read, the error names the operation.
func Decode[T any](op string, payload []byte) (T, error) {
	var in T
	err := json.Unmarshal(payload, &in)
	return in, tutti.Wrap(tutti.CodeInvalid, err, "message %q", op)
}
