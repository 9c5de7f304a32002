package identity

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// TokenParams describe a join token.
type TokenParams struct {
	Address string            `json:"address"` // address of the server's HTTPS, host:port
	Bus     string            `json:"bus"`     // of the bus, host:port
	Pin     tutti.Digest      `json:"pin"`     // Authority.Pin
	Name    string            `json:"name"`    // pattern of the node names that the token admits
	Groups  []tutti.GroupName `json:"groups,omitempty"`
	TTL     time.Duration     `json:"-"`
}

// Token is the content of a join token. Except for ID and Secret, the fields are only hints for the node. The server
// uses its own record of the token in the log.
type Token struct {
	ID tutti.TokenID `json:"id"`
	TokenParams
	Expires time.Time `json:"expires"`
	Secret  []byte    `json:"secret"`
}

const (
	tokenPrefix   = "tutti-join-1." //nolint:gosec // prefix of every token
	tokenSecret   = 32
	tokenChecksum = 8
)

// NewToken makes a join token. NewToken returns the text for the node, and the id and the hash for the log. Only the
// text contains the secret.
func NewToken(p TokenParams) (text string, id tutti.TokenID, secretHash tutti.Digest, err error) {
	var idBytes [8]byte
	t := Token{TokenParams: p, Expires: time.Now().Add(p.TTL).UTC().Truncate(time.Second), Secret: make([]byte, tokenSecret)}
	if err := p.Pin.Validate(); err != nil {
		return "", "", "", err
	}
	if p.TTL <= 0 {
		return "", "", "", tutti.Errorf(tutti.CodeInvalid, "join token: valid for %s, must be longer than 0", p.TTL)
	}
	// crypto/rand.Read never returns an error.
	_, _ = rand.Read(idBytes[:])
	_, _ = rand.Read(t.Secret)
	t.ID = tutti.TokenID(hex.EncodeToString(idBytes[:]))
	payload, err := json.Marshal(t)
	if err != nil {
		return "", "", "", fmt.Errorf("encode join token: %w", err)
	}
	sum := sha256.Sum256(payload)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(payload, sum[:tokenChecksum]...)), t.ID, tutti.DigestOf(t.Secret), nil
}

// ParseToken reads a join token. ParseToken returns CodeInvalid if the text was altered or cut off. Only the server
// knows whether the token is still valid.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return Token{}, tutti.Errorf(tutti.CodeInvalid, "not a join token: a join token begins with %q", tokenPrefix)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) < tokenChecksum {
		return Token{}, errTokenAltered
	}
	payload, sum := raw[:len(raw)-tokenChecksum], raw[len(raw)-tokenChecksum:]
	if want := sha256.Sum256(payload); !bytes.Equal(want[:tokenChecksum], sum) {
		return Token{}, errTokenAltered
	}
	var t Token
	if err := json.Unmarshal(payload, &t); err != nil {
		return Token{}, errTokenAltered
	}
	if t.Pin.Validate() != nil || len(t.Secret) != tokenSecret || t.ID == "" || t.Address == "" {
		return Token{}, errTokenAltered
	}
	return t, nil
}

var errTokenAltered = tutti.Errorf(tutti.CodeInvalid, "the join token was altered or cut: its checksum is wrong; copy the whole token again")

// MatchesSecret reports whether hash is the hash of secret.
func MatchesSecret(hash tutti.Digest, secret []byte) bool {
	return subtle.ConstantTimeCompare([]byte(hash), []byte(tutti.DigestOf(secret))) == 1
}
