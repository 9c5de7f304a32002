// Package durable writes files so that they are there after a loss of power, or
// were never begun: content and name are on disk when a call returns.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tutti-project/tutti/internal/killpoint"
)

// WriteFile replaces a file by rename. Readers see the old content or the new.
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

// SyncFiles makes what is in those files of dir durable, and their names. What is
// not there needs nothing.
func SyncFiles(dir string, names ...string) error {
	for _, name := range names {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
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

// SyncAll writes everything below the file system of dir to disk: one call
// instead of one fsync per file.
func SyncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncfs(d)
}

// Exists reports whether there is something at a path. A path that cannot be looked at has nothing.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
