//go:build !linux

package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncfs writes everything to disk, because only Linux can write a single file system.
func syncfs(*os.File) error { return unix.Sync() }
