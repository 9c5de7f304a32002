package natsbus

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"github.com/tutti-project/tutti"
)

var (
	plainIDRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	lowerB32  = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// maxEncodedID keeps subjects far shorter than the bus's limit.
const maxEncodedID = 128

// subjectOf returns the subject under which an event is stored: log.<noun>.<verb>.<id>. If the id is not a plain
// word, it is encoded. A long id is hashed. An encoded id begins with `=`, and a hashed id begins with `~`. A plain
// word contains neither character.
func subjectOf(b tutti.Body) string {
	id := b.ID()
	switch {
	case plainIDRE.MatchString(id):
	case lowerB32.EncodedLen(len(id)) <= maxEncodedID:
		id = "=" + lowerB32.EncodeToString([]byte(id))
	default:
		sum := sha256.Sum256([]byte(id))
		id = "~" + lowerB32.EncodeToString(sum[:])
	}
	return "log." + strings.ToLower(b.Kind()) + "." + id
}
