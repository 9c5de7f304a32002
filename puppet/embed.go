// Package puppetmodule carries the Puppet module tutti inside the binary, so
// that the agent ships the module that it speaks with and needs no other
// installation of it.
package puppetmodule

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
)

//go:embed metadata.json README.md REFERENCE.md bin lib
var files embed.FS

// Files returns the module as it is laid out on disk: metadata.json, bin and
// lib at its root, without specs and test data. Callers may not rely on modes:
// an embedded file has none that mean anything, and bin/puppet-tutti is
// started as an argument of Ruby.
func Files() fs.FS { return files }

// Digest returns "sha256:" and the digest of all paths and contents of Files.
// It is equal for equal modules, whatever machine built the binary.
func Digest() string {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%d %s %d ", len(path), path, len(content))
		if err != nil {
			return err
		}
		_, err = sum.Write(content)
		return err
	})
	if err != nil {
		// The files are part of the program: reading them cannot fail.
		panic(err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
