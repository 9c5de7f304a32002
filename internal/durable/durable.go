// Package durable writes files that survive a power failure. When a call returns, content
// and name are on disk. A write that was interrupted leaves the old state.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tutti-project/tutti/internal/killpoint"
)

// WriteFile replaces a file by rename. Readers see the old content or the new content.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err = tmp.Chmod(mode); err == nil {
		_, err = tmp.Write(content)
	}
	killpoint.Here("durable.written", filepath.Base(path))
	if err == nil {
		err = tmp.Sync()
	}
	killpoint.Here("durable.synced", filepath.Base(path))
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	killpoint.Here("durable.renamed", filepath.Base(path))
	defer killpoint.Here("durable.done", filepath.Base(path))
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// SyncFiles makes the content and the names of these files in dir durable. SyncFiles
// skips files that do not exist.
func SyncFiles(dir string, names ...string) error {
	for _, name := range names {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // do not block if the file has become a pipe
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = file.Sync()
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
	}
	return SyncDir(dir)
}

// SyncAll writes everything on the file system of dir to disk. A call of SyncAll replaces
// one fsync for each file.
func SyncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncfs(d)
}

// Exists reports whether a path exists. Exists returns false if the path cannot be read.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
