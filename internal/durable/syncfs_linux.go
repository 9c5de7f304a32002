//go:build !killpoints

package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncfs writes everything on the file system of dir to disk.
func syncfs(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
