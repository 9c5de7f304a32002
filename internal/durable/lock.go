package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tutti-project/tutti"
)

// Lock takes the exclusive lock of a data directory. The lock ends with the process or
// when the file is closed. Lock returns CodeConflict if another process has the lock.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, tutti.Errorf(tutti.CodeConflict, "%s is in use by another process: %v", dir, err)
	}
	_ = f.Truncate(0)
	fmt.Fprintf(f, "%d\n", os.Getpid())
	return f, nil
}
