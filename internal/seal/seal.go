// Package seal makes and opens secrets (ADR 0025). Each sealed piece is an age file
// (https://age-encryption.org/v1) for one X25519 key: the key of a node, or the recovery key of the operators.
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

// maxOpened is how many bytes of an opened secret are read. An opened secret with its key and id is a little larger
// than the secret itself.
const maxOpened = tutti.MaxSecret + 4096

// ToNode seals a secret to the key of a node. The key has the same form as in the event NodeEnrolled. ToNode
// returns CodeInvalid if the key is not an X25519 key.
func ToNode(text tutti.SecretText, boxKey string) ([]byte, error) {
	if err := tutti.ValidateBoxKey(boxKey); err != nil {
		return nil, err
	}
	raw, _ := base64.StdEncoding.DecodeString(boxKey) // the key was just checked
	return seal(text, encodeBech32("age", raw))
}

// ToRecovery seals a secret to a recovery key (age1…), together with the targets of the secret.
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
		return nil, tutti.Errorf(tutti.CodeInvalid, "nobody can seal to this key: %v", err)
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

// PublicKey returns the public half of a node's key, in the same form as in the event NodeEnrolled.
func PublicKey(box *ecdh.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(box.PublicKey().Bytes())
}

// OpenNode opens a piece that was sealed to the key of a node. OpenNode returns CodeRefused if the content is not the
// secret that `v` names.
func OpenNode(v tutti.SealedValue, box *ecdh.PrivateKey) (json.RawMessage, error) {
	text, err := open(v, strings.ToUpper(encodeBech32("age-secret-key-", box.Bytes())))
	return text.Value, err
}

// OpenRecovery opens a piece that was sealed to a recovery key, with the private half of this key
// (AGE-SECRET-KEY-1…). OpenRecovery returns CodeRefused if the content is not the secret that `v` names, or was
// sealed for other targets.
func OpenRecovery(v tutti.SealedValue, private string) (json.RawMessage, error) {
	text, err := open(v, private)
	if err == nil && !slices.Equal(text.For, v.For) {
		err = tutti.Errorf(tutti.CodeRefused, "secret %q: the server says that it is for %s, but it was sealed for %s: do not trust the server, or set the secret again",
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
		return text, tutti.Errorf(tutti.CodeInvalid, "the private key is invalid") // err contains the key
	}
	r, err := age.Decrypt(bytes.NewReader(v.Sealed), identity)
	if err != nil {
		return text, tutti.Errorf(tutti.CodeRefused, "secret %q: it is not sealed to this key", v.Key)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxOpened+1))
	if err != nil || len(raw) > maxOpened {
		return tutti.SecretText{}, tutti.Errorf(tutti.CodeRefused, "secret %q: the sealed content is damaged or too large", v.Key)
	}
	if err := json.Unmarshal(raw, &text); err != nil { // err may quote the secret
		return tutti.SecretText{}, tutti.Errorf(tutti.CodeRefused, "secret %q: the sealed content is not a secret", v.Key)
	}
	if text.Key != v.Key || text.ID != v.ID {
		return tutti.SecretText{}, tutti.Errorf(tutti.CodeRefused, "secret %q: the sealed content is another secret (%q)", v.Key, text.Key)
	}
	return text, nil
}

// NewRecovery makes a recovery key. NewRecovery returns the private half (AGE-SECRET-KEY-1…) and the public half
// (age1…).
func NewRecovery() (private, public string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", tutti.Wrap(tutti.CodeInternal, err, "make a recovery key")
	}
	return identity.String(), identity.Recipient().String(), nil
}

// PublicOf returns the public half of a recovery key. PublicOf returns CodeInvalid if private is not a recovery key.
func PublicOf(private string) (string, error) {
	identity, err := age.ParseX25519Identity(private)
	if err != nil {
		return "", tutti.Errorf(tutti.CodeInvalid, "no recovery key: a line AGE-SECRET-KEY-1… is expected")
	}
	return identity.Recipient().String(), nil
}

// ValidateRecovery returns an error if the text is not a public recovery key.
func ValidateRecovery(public string) error {
	if _, err := age.ParseX25519Recipient(public); err != nil {
		return tutti.Errorf(tutti.CodeInvalid, "%.80q is not a public key of age (age1…)", public)
	}
	return nil
}

// maxBatch is the largest size of a batch as JSON. A message has room for a batch of this size and for
// the other content of the message.
const maxBatch = 150 << 10

// The function `encoded` returns approximately how many bytes of JSON a secret needs.
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

// CheckKey refuses a key to which nobody can seal. A key is refused if it is not an X25519 key. A key is also refused
// if it is one of the few weak keys. A weak key gives the same shared secret with every private key.
func CheckKey(boxKey string) error {
	_, err := ToNode(tutti.SecretText{Value: json.RawMessage("1")}, boxKey)
	return tutti.Wrap(tutti.CodeInvalid, err, "the key for secrets")
}

// Batches seals a secret to nodes, and divides the pieces into requests, so that each request fits into one
// message. Only the first request has the other fields of the argument `secret`.
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
