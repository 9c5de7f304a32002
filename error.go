package tutti

import (
	"errors"
	"fmt"
	"strings"
)

// Code classifies an error once for all interfaces. HTTP status, bus reply and exit code follow
// from the code (see httpapi, natsbus and cli).
type Code string

// The codes. An error without a code counts as CodeInternal.
const (
	CodeInvalid         Code = "invalid"         // the input is wrong, and sending it again cannot help
	CodeNotFound        Code = "not_found"       // the named thing does not exist
	CodeConflict        Code = "conflict"        // the thing exists already, or changed at the same time
	CodeUnauthenticated Code = "unauthenticated" // the caller is unknown
	CodeRefused         Code = "refused"         // the caller is known, but has no grant
	CodeUnavailable     Code = "unavailable"     // the other side does not answer, and trying again may help
	CodeDeadline        Code = "deadline"        // the time limit was reached
	CodeDamaged         Code = "damaged"         // the stored content is not the content that was written
	CodeInternal        Code = "internal"        // a mistake in Tutti
)

// Error is an error with a code and a message for people. The message says what is wrong, where,
// with which input, and what to do.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// MaxErrorText bounds the text of an error, in bytes. An error text may quote input from others.
// The error text goes to logs, terminals and the bus.
const MaxErrorText = 128 << 10

// Error returns the message, followed by the cause if there is one. Error cuts a text that is
// longer than MaxErrorText. The cut text ends with `…`.
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

// Errorf makes an Error without a cause. A %w in the format only adds the text of its operand.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: nil}
}

// Wrap adds a code to err, and a message with the context of the failed call. A nil err stays nil. If code is empty,
// the new error has the code of err.
func Wrap(code Code, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if code == "" {
		code = CodeOf(err)
	}
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// CodeOf returns the code of the outermost Error in err's chain. CodeOf returns CodeInternal if the
// chain has no Error, and the empty code if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
