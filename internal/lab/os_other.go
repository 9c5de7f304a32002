//go:build !linux

package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// On other systems, these functions are never called, because Check returns an
// error first.

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func runAttached(*exec.Cmd) error { return errors.ErrUnsupported }

func setSession(*exec.Cmd) {}

func setGroup(*exec.Cmd) {}

func unmount(string) error { return errors.ErrUnsupported }

// Relay copies packets for a slow link.
func Relay(context.Context, string, string, Slow) error { return errors.ErrUnsupported }
