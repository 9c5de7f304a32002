package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// These errors say what is wrong with a file of key material. Use errors.Is.
var (
	ErrMissing = errors.New("file is missing")
	ErrCorrupt = errors.New("file is corrupt")
	ErrExposed = errors.New("file can be read by others")
)

// The type `file` is one file in a directory of key material.
type file struct {
	name    string
	content []byte
}

// writeFile replaces dir/name. After a crash, the file has either the complete old content or the complete new
// content. Only the owner can read the file.
func writeFile(dir, name string, content []byte) error {
	path := filepath.Join(dir, name)
	if err := durable.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readFile returns the content of dir/name. readFile returns ErrExposed if anybody but the owner can read the
// file.
func readFile(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fileError(tutti.CodeNotFound, path, ErrMissing)
	case err != nil:
		return nil, fmt.Errorf("read key material: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		return nil, &tutti.Error{Code: tutti.CodeRefused, Message: fmt.Sprintf("%s has mode %04o; change the mode to 0600, and assume that others know the file's content", path, info.Mode().Perm()), Err: ErrExposed}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key material: %w", err)
	}
	return content, nil
}

func fileError(code tutti.Code, path string, what error) error {
	return &tutti.Error{Code: code, Message: path, Err: what}
}

func corrupt(dir, name string) error {
	return fileError(tutti.CodeInvalid, filepath.Join(dir, name), ErrCorrupt)
}

// ValidateNewDir returns CodeConflict if a directory for key material is not empty.
func ValidateNewDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return tutti.Errorf(tutti.CodeConflict, "%s exists and is not empty; nothing was changed", dir)
	}
	return nil
}

// newDir creates dir for key material. newDir returns CodeConflict if the directory is not empty.
func newDir(dir string) error {
	if err := ValidateNewDir(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for key material: %w", err)
	}
	return os.Chmod(dir, 0o700)
}
