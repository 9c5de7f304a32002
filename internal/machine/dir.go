// Package machine has what servers and agents need from their machine: systemd units, the locks of their
// directories, and a node's credentials. It also lets a machine leave its fleet.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tutti-project/tutti"
)

// IdentityDir is the directory inside an agent's directory with the files that say which node this is.
func IdentityDir(dir string) string { return filepath.Join(dir, "identity") }

// CompileFile is a file in the agent's directory on a host with a Puppet Server.
const CompileFile = "compile.json"

// Lock takes the exclusive lock of a data directory. The lock ends with the
// process or when the file is closed. CodeConflict: another process has the lock.
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
