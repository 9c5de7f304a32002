package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// SignManifest signs a code manifest of an environment.
func SignManifest(key ed25519.PrivateKey, environment string, manifest []byte) []byte {
	return ed25519.Sign(key, manifestMessage(environment, manifest))
}

// VerifyManifest returns CodeRefused if key did not sign the manifest for this environment.
func VerifyManifest(key ed25519.PublicKey, environment string, manifest, signature []byte) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, manifestMessage(environment, manifest), signature) {
		return tutti.Errorf(tutti.CodeRefused, "code manifest of environment %q: not signed with the key of this fleet's operators", environment)
	}
	return nil
}

// manifestMessage returns the bytes to sign. The bytes contain the manifest and the environment, so a signature is
// valid only for both together.
func manifestMessage(environment string, manifest []byte) []byte {
	return encodeParts("tutti-code-manifest-1", []byte(environment), manifest)
}

// EncodeCodePublicKey converts the public key that verifies manifests to text.
func EncodeCodePublicKey(key ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // an ed25519 key can be marshalled
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// ParseCodePublicKey is the inverse of EncodeCodePublicKey.
func ParseCodePublicKey(text string) (ed25519.PublicKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block != nil {
		if key, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if ed, ok := key.(ed25519.PublicKey); ok {
				return ed, nil
			}
		}
	}
	return nil, tutti.Errorf(tutti.CodeInvalid, "not a code-signing public key")
}

// ForgetCodeKey removes the code-signing key from the server. Call ForgetCodeKey when the first operator's bundle has
// been written. After that the server cannot sign code.
func (a *Authority) ForgetCodeKey() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := os.Remove(filepath.Join(a.dir, fileCodeKey))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the code-signing key: %w", err)
	}
	a.codeKey = nil
	return durable.SyncDir(a.dir)
}

func (a *Authority) makeCodeKey() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make the code-signing key: %w", err)
	}
	a.codePub, a.codeKey = public, private
	if err := writeFile(a.dir, fileCodeKey, encodeCodeKey(private)); err != nil {
		return err
	}
	return writeFile(a.dir, fileCodePub, []byte(EncodeCodePublicKey(public)))
}

func (a *Authority) loadCodeKey() error {
	text, err := readFile(a.dir, fileCodePub)
	if err != nil {
		return err
	}
	if a.codePub, err = ParseCodePublicKey(string(text)); err != nil {
		return corrupt(a.dir, fileCodePub)
	}
	a.codeKey, err = loadCodeKey(a.dir)
	return err
}

func encodeCodeKey(key ed25519.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err) // an ed25519 key can be marshalled
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// loadCodeKey returns nil and no error if dir has no code-signing key.
func loadCodeKey(dir string) (ed25519.PrivateKey, error) { return loadKeyIn(dir, fileCodeKey) }

func loadKeyIn(dir, name string) (ed25519.PrivateKey, error) {
	text, err := readFile(dir, name)
	if errors.Is(err, ErrMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(text); block != nil {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if ed, ok := key.(ed25519.PrivateKey); ok {
				return ed, nil
			}
		}
	}
	return nil, corrupt(dir, name)
}

// fileNextCodeKey is the name of a file in an operator's directory. The file contains the key that will sign code
// after the present rotation.
const fileNextCodeKey = "code-next.key"

// NextCodeKey returns the key that will replace the code-signing key in an operator's directory. NextCodeKey returns
// nil if no rotation has begun there.
func NextCodeKey(dir string) (ed25519.PrivateKey, error) { return loadKeyIn(dir, fileNextCodeKey) }

// MakeNextCodeKey makes the next key if it does not exist. The key is on disk when MakeNextCodeKey returns.
func MakeNextCodeKey(dir string) (ed25519.PrivateKey, error) {
	key, err := NextCodeKey(dir)
	if err != nil || key != nil {
		return key, err
	}
	if _, key, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, fmt.Errorf("make the next code-signing key: %w", err)
	}
	return key, writeFile(dir, fileNextCodeKey, encodeCodeKey(key))
}

// UseNextCodeKey replaces the code-signing key by the next key. The old key is deleted.
func UseNextCodeKey(dir string) error {
	if err := os.Rename(filepath.Join(dir, fileNextCodeKey), filepath.Join(dir, fileCodeKey)); err != nil {
		return fmt.Errorf("use the next code-signing key: %w", err)
	}
	return durable.SyncDir(dir)
}
