package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// Cache is a directory of an operator with bare clones, archives of a forge, and lists of files. Everything in it can be
// fetched again.
type Cache struct{ Dir string }

// entry is a file of a tree. The field Blob names its content in the tree's source.
type entry struct {
	tutti.CodeFile
	Blob string `json:"blob,omitempty"`
}

// files are the files of a tree, by path.
type files map[string]entry

// treeFormat is part of the names of stored lists. Raise it if the meaning of a list changes.
const treeFormat = "1"

// The method `tree` returns the stored list of files of a commit or an archive, and false if there is none.
func (c Cache) tree(id string) (files, bool) {
	raw, err := os.ReadFile(c.treeFile(id))
	var out files
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return nil, false
	}
	return out, true
}

func (c Cache) treeFile(id string) string {
	return filepath.Join(c.Dir, "trees", treeFormat+"-"+id+".json")
}

func (c Cache) keepTree(id string, of files) error {
	raw, err := json.Marshal(of)
	if err != nil {
		return err
	}
	return c.write(c.treeFile(id), raw)
}

// forgetTree removes a list that does not fit its content.
func (c Cache) forgetTree(id string) { _ = os.Remove(c.treeFile(id)) }

// The method `write` writes a file of the cache, whole or not at all.
func (c Cache) write(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(file, content, 0o600)
}

// The method `lock` locks something in the cache against other processes. The caller calls the result to unlock it.
func (c Cache) lock(name string) (func(), error) {
	file := filepath.Join(c.Dir, "locks", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// short names an address in a file name.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
