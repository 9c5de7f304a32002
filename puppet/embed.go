// Package puppetmodule is the Puppet module tutti as part of the binary: the
// agent ships the very module that it speaks with.
package puppetmodule

import (
	"embed"
	"encoding/hex"
	"io/fs"

	"crypto/sha256"

	"github.com/tutti-project/tutti"
)

//go:embed bin lib metadata.json
var files embed.FS

// FS returns the module's files, as they belong below a directory `tutti`.
func FS() fs.FS { return files }

// Digest is over the names and contents of all files.
func Digest() (tutti.Digest, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		sum.Write([]byte(path + "\x00" + string(tutti.DigestOf(content)) + "\n"))
		return nil
	})
	return tutti.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil))), err
}
