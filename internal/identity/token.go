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

// TokenParams say what a join token is for.
type TokenParams struct {
	Address string            `json:"address"` // of the server's HTTPS, host:port
	Bus     string            `json:"bus"`     // of the bus, host:port
	Pin     tutti.Digest      `json:"pin"`     // Authority.Pin
	Name    string            `json:"name"`    // pattern of the names it admits
	Groups  []tutti.GroupName `json:"groups,omitempty"`
	TTL     time.Duration     `json:"-"`
}

// Token is a join token as a node reads it. Except for ID and Secret, it only advises the node. The server uses what
// its log says about ID.
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

// NewToken makes a join token. It returns the line for the node, and what the log keeps of the token. Only the line has
// the secret.
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

// ParseToken reads a join token. CodeInvalid: it was altered or cut. Only the server knows whether it is still valid.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return Token{}, tutti.Errorf(tutti.CodeInvalid, "not a join token: it would begin with %q", tokenPrefix)
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

var errTokenAltered = tutti.Errorf(tutti.CodeInvalid, "the join token was altered or cut: its checksum does not fit; copy it again as a whole")

// MatchesSecret reports whether hash is the hash of secret.
func MatchesSecret(hash tutti.Digest, secret []byte) bool {
	return subtle.ConstantTimeCompare([]byte(hash), []byte(tutti.DigestOf(secret))) == 1
}
