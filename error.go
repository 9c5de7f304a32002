package tutti

import (
	"errors"
	"fmt"
	"strings"
)

// Code classifies an error once for all borders: HTTP status, bus reply and
// exit code are derived from it (see httpapi, natsbus and cli).
type Code string

// The codes. A missing code is CodeInternal.
const (
	CodeInvalid         Code = "invalid"         // the input is wrong; repeating it cannot help
	CodeNotFound        Code = "not_found"       // what was named does not exist
	CodeConflict        Code = "conflict"        // it exists already, or changed meanwhile
	CodeUnauthenticated Code = "unauthenticated" // nobody we know
	CodeRefused         Code = "refused"         // known, but without a grant
	CodeUnavailable     Code = "unavailable"     // the other side is away; repeating may help
	CodeDeadline        Code = "deadline"        // waited as long as was allowed
	CodeDamaged         Code = "damaged"         // what is stored is not what was stored
	CodeInternal        Code = "internal"        // our mistake
)

// Error is an error with a code and a message for people: what is wrong,
// where, with which input and what to do.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// MaxErrorText bounds the text of an error, in bytes. The text quotes input from
// others, and goes to logs, terminals and the bus.
const MaxErrorText = 128 << 10

// Error returns the message, followed by the cause if there is one. A text that
// is longer than MaxErrorText ends with `…`.
func (e *Error) Error() string {
	text := e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if len(text) > MaxErrorText {
		const cut = "…"
		text = strings.ToValidUTF8(text[:MaxErrorText-len(cut)], "") + cut
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error. A %w in the format becomes its cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: nil}
}

// Wrap gives err a code and the context that the caller owns. A nil err stays
// nil; an err that has a code keeps it when code is empty.
func Wrap(code Code, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if code == "" {
		code = CodeOf(err)
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// CodeOf returns the code of the outermost Error in err's chain, CodeInternal
// without one and the empty code for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
