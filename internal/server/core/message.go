package core

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

const (
	// MaxBlob bounds content, in bytes: a file of code, a gate, a report.
	MaxBlob = 64 << 20
	// MaxCodeFiles bounds the files of one manifest of code.
	MaxCodeFiles = 200_000
)

// OrMissing is what became of a look for content: CodeConflict if there was no error.
func OrMissing(err error) error {
	if err != nil {
		return err
	}
	return tutti.Errorf(tutti.CodeConflict, "the server does not have it; send it first")
}

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
