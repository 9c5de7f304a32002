//go:build killpoints

package durable

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti/internal/killpoint"
)

// syncfs sets an attribute, so that package powerfs learns of a call that FUSE does not
// pass on. Other file systems do not support the attribute.
func syncfs(dir *os.File) error {
	_ = unix.Fsetxattr(int(dir.Fd()), killpoint.SyncAttr, nil, 0)
	return unix.Syncfs(int(dir.Fd()))
}
