// Package seal makes and opens secrets (ADR 0025): each one is an age file (https://age-encryption.org/v1) for one
// X25519 key, a node's or the recovery key of the operators.
package seal

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/tutti-project/tutti"
)

// maxOpened bounds what is read of an opened secret: with its key and id it is a little larger than the secret.
const maxOpened = tutti.MaxSecret + 4096

// ToNode seals to the key of a node, as NodeEnrolled has it. CodeInvalid: it is not an X25519 key.
func ToNode(text tutti.SecretText, boxKey string) ([]byte, error) {
	if err := tutti.ValidateBoxKey(boxKey); err != nil {
		return nil, err
	}
	raw, _ := base64.StdEncoding.DecodeString(boxKey) // just checked
	return seal(text, encodeBech32("age", raw))
}

// ToRecovery seals to a recovery key (age1…), with the targets that the secret is for.
func ToRecovery(text tutti.SecretText, targets []string, recovery string) ([]byte, error) {
	text.For = targets
	return seal(text, recovery)
}

func seal(text tutti.SecretText, recipient string) ([]byte, error) {
	if len(text.Value) > tutti.MaxSecret {
		return nil, tutti.Errorf(tutti.CodeInvalid, "secret %q: %d bytes of JSON, at most %d", text.Key, len(text.Value), tutti.MaxSecret)
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "no key to seal to: %v", err)
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "secret %q", text.Key)
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err == nil {
		if _, err = w.Write(raw); err == nil {
			err = w.Close()
		}
	}
	return out.Bytes(), tutti.Wrap(tutti.CodeInternal, err, "seal %q", text.Key)
}

// PublicKey is the public half of a node's key, as NodeEnrolled has it.
func PublicKey(box *ecdh.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(box.PublicKey().Bytes())
}

// OpenNode opens what was sealed to the key of a node, and refuses it (CodeRefused) if it is not the secret that it is
// said to be.
func OpenNode(v tutti.SealedValue, box *ecdh.PrivateKey) (json.RawMessage, error) {
	text, err := open(v, strings.ToUpper(encodeBech32("age-secret-key-", box.Bytes())))
	return text.Value, err
}

// OpenRecovery opens what was sealed to a recovery key, given its private half (AGE-SECRET-KEY-1…), and refuses it
// (CodeRefused) if it is not the secret that it is said to be, or was meant for other targets.
func OpenRecovery(v tutti.SealedValue, private string) (json.RawMessage, error) {
	text, err := open(v, private)
	if err == nil && !slices.Equal(text.For, v.For) {
		err = tutti.Errorf(tutti.CodeRefused, "secret %q: the server says that it is for %s, and it was sealed for %s: do not believe the server, or set the secret once more",
			v.Key, strings.Join(v.For, " "), strings.Join(text.For, " "))
	}
	if err != nil {
		return nil, err
	}
	return text.Value, nil
}

func open(v tutti.SealedValue, private string) (text tutti.SecretText, err error) {
	identity, err := age.ParseX25519Identity(private)
	if err != nil {
		return text, tutti.Errorf(tutti.CodeInvalid, "the private key is invalid") // err has the key
	}
	r, err := age.Decrypt(bytes.NewReader(v.Sealed), identity)
	if err != nil {
		return text, tutti.Errorf(tutti.CodeRefused, "secret %q: it is not sealed to this key", v.Key)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxOpened+1))
	if err != nil || len(raw) > maxOpened {
		return tutti.SecretText{}, tutti.Errorf(tutti.CodeRefused, "secret %q: what is sealed is damaged or too large", v.Key)
	}
	if err := json.Unmarshal(raw, &text); err != nil { // err may quote it
		return tutti.SecretText{}, tutti.Errorf(tutti.CodeRefused, "secret %q: what is sealed is no secret", v.Key)
	}
	if text.Key != v.Key || text.ID != v.ID {
		return tutti.SecretText{}, tutti.Errorf(tutti.CodeRefused, "secret %q: what is sealed is another secret (%q)", v.Key, text.Key)
	}
	return text, nil
}

// NewRecovery makes a recovery key: the private half (AGE-SECRET-KEY-1…) and the public one (age1…).
func NewRecovery() (private, public string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", tutti.Wrap(tutti.CodeInternal, err, "make a recovery key")
	}
	return identity.String(), identity.Recipient().String(), nil
}

// PublicOf returns the public half of a recovery key. CodeInvalid: it is none.
func PublicOf(private string) (string, error) {
	identity, err := age.ParseX25519Identity(private)
	if err != nil {
		return "", tutti.Errorf(tutti.CodeInvalid, "no recovery key: a line AGE-SECRET-KEY-1… is expected")
	}
	return identity.Recipient().String(), nil
}

// ValidateRecovery refuses what is not a public recovery key.
func ValidateRecovery(public string) error {
	if _, err := age.ParseX25519Recipient(public); err != nil {
		return tutti.Errorf(tutti.CodeInvalid, "%.80q is no public key of age (age1…)", public)
	}
	return nil
}

// maxBatch bounds a batch as JSON, so that with what is around it it fits into any message that carries it.
const maxBatch = 150 << 10

// encoded is about how many bytes of JSON a secret is.
func encoded(s tutti.Secret) int {
	size := 1024 + len(s.Key) + base64.StdEncoding.EncodedLen(len(s.Recovery))
	for _, target := range s.For {
		size += len(target) + 3
	}
	for _, p := range s.Pieces {
		size += pieceBytes(len(p.Node), len(p.Sealed))
	}
	return size
}

func pieceBytes(name, sealed int) int { return 150 + name + base64.StdEncoding.EncodedLen(sealed) }

// CheckKey refuses what nobody can seal to: it is not an X25519 key, or one of the few that are the same with each other key.
func CheckKey(boxKey string) error {
	_, err := ToNode(tutti.SecretText{Value: json.RawMessage("1")}, boxKey)
	return tutti.Wrap(tutti.CodeInvalid, err, "the key for secrets")
}

// Batches seals to nodes and returns requests of which each fits into one message: the first one has what secret has.
func Batches(secret tutti.Secret, text tutti.SecretText, to []tutti.Recipient) ([]tutti.Secret, error) {
	batches := []tutti.Secret{secret}
	for _, n := range to {
		sealed, err := ToNode(text, n.BoxKey)
		if err != nil {
			return nil, tutti.Wrap("", err, "node %s", n.Node)
		}
		last := &batches[len(batches)-1]
		if len(last.Pieces) == tutti.MaxPieces || encoded(*last)+pieceBytes(len(n.Node), len(sealed)) > maxBatch {
			batches = append(batches, tutti.Secret{Key: secret.Key, ID: secret.ID, For: secret.For})
			last = &batches[len(batches)-1]
		}
		last.Pieces = append(last.Pieces, tutti.Piece{Node: n.Node, Box: tutti.BoxDigest(n.BoxKey), Sealed: sealed})
	}
	return batches, nil
}
