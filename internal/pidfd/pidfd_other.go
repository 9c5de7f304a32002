//go:build !linux

package pidfd

import (
	"context"

	"github.com/tutti-project/tutti"
)

// Wait returns an error, because agents run only on Linux.
func Wait(context.Context, int) error {
	return tutti.Errorf(tutti.CodeInvalid, "an agent runs on Linux only")
}
