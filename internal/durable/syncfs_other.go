//go:build !linux

package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncfs writes everything to disk: one file system alone can be named on
// Linux only.
func syncfs(*os.File) error { return unix.Sync() }
