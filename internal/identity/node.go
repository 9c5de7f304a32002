package identity

import (
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/seal"
)

// NodeIdentity contains the keys of a node. The node makes these keys, and they never leave the node.
type NodeIdentity struct {
	Key  tutti.NodeKey
	Seed []byte           // of Key
	Box  *ecdh.PrivateKey // an X25519 key, to which secrets are sealed
}

// These are the files of a node's identity.
const (
	fileNodeSeed = "node.nk"
	fileNodeBox  = "node.x25519"
)

// NewNode makes the keys of a node.
func NewNode() (NodeIdentity, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return NodeIdentity{}, fmt.Errorf("make a node key: %w", err)
	}
	seed, err := kp.Seed()
	if err != nil {
		return NodeIdentity{}, fmt.Errorf("make a node key: %w", err)
	}
	key, err := public(kp)
	if err != nil {
		return NodeIdentity{}, err
	}
	box, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return NodeIdentity{}, fmt.Errorf("make a box key: %w", err)
	}
	return NodeIdentity{Key: tutti.NodeKey(key), Seed: seed, Box: box}, nil
}

// BoxKey returns the public X25519 key in base64. Events contain the key in this form.
func (n NodeIdentity) BoxKey() string {
	return seal.PublicKey(n.Box)
}

// Write stores the identity in dir, which must exist.
func (n NodeIdentity) Write(dir string) error {
	if err := writeBox(dir, fileNodeBox, n.Box); err != nil {
		return err
	}
	return writeFile(dir, fileNodeSeed, n.Seed)
}

// LoadNode reads the identity that Write stored. LoadNode returns the same errors as Load. LoadNode returns
// CodeNotFound only if there is no seed. Write stores the seed last.
func LoadNode(dir string) (NodeIdentity, error) {
	seed, err := readFile(dir, fileNodeSeed)
	if err != nil {
		return NodeIdentity{}, err
	}
	box, err := readBox(dir, fileNodeBox)
	if errors.Is(err, ErrMissing) {
		return NodeIdentity{}, fileError(tutti.CodeInvalid, filepath.Join(dir, fileNodeBox), ErrMissing)
	}
	if err != nil {
		return NodeIdentity{}, err
	}
	kp, err := nkeys.FromSeed(seed)
	if err != nil {
		return NodeIdentity{}, corrupt(dir, fileNodeSeed)
	}
	key, err := kp.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(key) {
		return NodeIdentity{}, corrupt(dir, fileNodeSeed)
	}
	return NodeIdentity{Key: tutti.NodeKey(key), Seed: seed, Box: box}, nil
}
