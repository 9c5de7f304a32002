package httpapi

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Each answer to an operator has a header `SIGNER CA CA` (ADR 0027). The header's first word is the CA that now
// issues operators' certificates. The other words are the CAs by which the operator should verify the server.
const headerTrust = "Tutti-Trust"

// Trust is the set of keys that an operator should use, as the server reports it.
type Trust struct {
	Signer tutti.Digest
	CAs    []tutti.Digest // sorted
}

func setTrust(h http.Header, sets tutti.KeySets) {
	words := []string{string(sets.Issuing().CA)}
	for _, ca := range sets.Trusted() {
		words = append(words, string(ca))
	}
	h.Set(headerTrust, strings.Join(words, " "))
}

// maxTrust is the largest number of words in the header. During a rotation the header has two CAs.
const maxTrust = 9

// trustIn parses the header. trustIn returns false if the header is missing or invalid.
func trustIn(h http.Header) (Trust, bool) {
	words := strings.Split(h.Get(headerTrust), " ")
	if len(words) < 2 || len(words) > maxTrust {
		return Trust{}, false
	}
	out := Trust{Signer: tutti.Digest(words[0])}
	for _, word := range words[1:] {
		ca := tutti.Digest(word)
		if ca.Validate() != nil {
			return Trust{}, false
		}
		out.CAs = append(out.CAs, ca)
	}
	slices.Sort(out.CAs)
	return out, slices.Contains(out.CAs, out.Signer)
}

// provedBy reports whether one of the CAs has signed the server's certificate on this connection. If none of the
// CAs has signed this certificate, an operator who trusts only these CAs could not connect again.
func (t Trust) provedBy(state *tls.ConnectionState) bool {
	if state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	chain := state.VerifiedChains[0]
	return slices.Contains(t.CAs, tutti.DigestOf(chain[len(chain)-1].RawSubjectPublicKeyInfo))
}
