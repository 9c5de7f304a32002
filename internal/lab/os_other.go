//go:build !linux

package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// On other systems, Check returns an error before any of these is called.

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }

func runAttached(*exec.Cmd) error { return errors.ErrUnsupported }

func setSession(*exec.Cmd) {}

func setGroup(*exec.Cmd) {}

func unmount(string) error { return errors.ErrUnsupported }

// Relay passes packets for a slow link.
func Relay(context.Context, string, string, Slow) error { return errors.ErrUnsupported }
