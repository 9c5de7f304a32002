//go:build killpoints

package durable

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti/internal/killpoint"
)

// FUSE does not pass a call of syncfs on to package powerfs. Therefore this function also sets an attribute of the
// directory. From this attribute powerfs learns of the call. Other file systems do not support the attribute.
func syncfs(dir *os.File) error {
	_ = unix.Fsetxattr(int(dir.Fd()), killpoint.SyncAttr, nil, 0)
	return unix.Syncfs(int(dir.Fd()))
}
