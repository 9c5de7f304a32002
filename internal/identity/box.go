package identity

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// These are the files of a node's older and newer keys for secrets.
const (
	fileNextBox = "node.x25519.next" // the next key; perhaps the server does not know it yet
	fileOldBox  = "node.x25519.old"  // the previous key; secrets in stored answers may be sealed to it
)

// Boxes are the keys for a node's secrets. Secrets are sealed to these keys. After a loss of power, the
// file of the present key still exists. The file of the next key may be lost.
type Boxes struct {
	dir string

	mu                 sync.Mutex
	present, next, old *ecdh.PrivateKey
}

// LoadBoxes reads the keys for secrets in the directory of a node's identity. LoadBoxes returns the same errors as
// LoadNode.
func LoadBoxes(dir string) (*Boxes, error) {
	b := &Boxes{dir: dir}
	for name, key := range map[string]**ecdh.PrivateKey{fileNodeBox: &b.present, fileNextBox: &b.next, fileOldBox: &b.old} {
		var err error
		if *key, err = readBox(dir, name); err != nil && (name == fileNodeBox || !errors.Is(err, ErrMissing)) {
			return nil, err
		}
	}
	return b, nil
}

func readBox(dir, name string) (*ecdh.PrivateKey, error) {
	text, err := readFile(dir, name)
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return nil, corrupt(dir, name)
	}
	box, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return nil, corrupt(dir, name)
	}
	return box, nil
}

func writeBox(dir, name string, box *ecdh.PrivateKey) error {
	return writeFile(dir, name, []byte(base64.StdEncoding.EncodeToString(box.Bytes())))
}

// Keys returns all keys that may open a secret, the present key first.
func (b *Boxes) Keys() []*ecdh.PrivateKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*ecdh.PrivateKey
	for _, key := range []*ecdh.PrivateKey{b.present, b.next, b.old} {
		if key != nil {
			out = append(out, key)
		}
	}
	return out
}

// Pending reports whether there is a next key.
func (b *Boxes) Pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next != nil
}

// Next returns the next key. If there is no next key, Next makes one.
func (b *Boxes) Next() (*ecdh.PrivateKey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		return b.next, nil
	}
	next, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a box key: %w", err)
	}
	if err := writeBox(b.dir, fileNextBox, next); err != nil {
		return nil, err
	}
	killpoint.Here("agent.box-made")
	b.next = next
	return next, nil
}

// Switch makes the next key the present key.
func (b *Boxes) Switch() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		return nil
	}
	if err := writeBox(b.dir, fileOldBox, b.present); err != nil {
		return err
	}
	killpoint.Here("agent.box-kept")
	if err := os.Rename(filepath.Join(b.dir, fileNextBox), filepath.Join(b.dir, fileNodeBox)); err != nil {
		return err
	}
	if err := durable.SyncDir(b.dir); err != nil {
		return err
	}
	b.present, b.next, b.old = b.next, nil, b.present
	return nil
}
