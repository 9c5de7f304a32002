package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncfs writes everything on the file system of d to disk.
func syncfs(d *os.File) error { return unix.Syncfs(int(d.Fd())) }
