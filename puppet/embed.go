// Package puppetmodule embeds the Puppet module tutti in the binary, so that agent and module
// always have the same version.
package puppetmodule

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
)

//go:embed bin lib manifests metadata.json
var files embed.FS

// FS returns the files of the module as they belong in a directory `tutti`.
func FS() fs.FS { return files }

// Digest returns a digest of the names and contents of all files, in hex.
func Digest() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s\x00%d\x00", path, len(content))
		sum.Write(content)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}
