//go:build !linux

package pidfd

import (
	"context"

	"github.com/tutti-project/tutti"
)

// Wait says that there is no agent here.
func Wait(context.Context, int) error {
	return tutti.Errorf(tutti.CodeInvalid, "an agent runs on Linux only")
}
