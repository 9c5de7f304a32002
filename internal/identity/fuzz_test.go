package identity_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/identity"
)

// tokenText returns the text of a token with this content and a correct checksum.
func tokenText(payload []byte) string {
	sum := sha256.Sum256(payload)
	return "tutti-join-1." + base64.RawURLEncoding.EncodeToString(append(payload, sum[:8]...))
}

// FuzzParseToken checks that the text of a token is either refused or has only
// values that a node can use. FuzzParseToken tries each text as it is, and again
// with a correct checksum.
//
// Found: empty-list-of-groups (the test treated an empty list and an absent list
// as different tokens).
func FuzzParseToken(f *testing.F) {
	payload := `{"id":"00","address":"tutti:8140","bus":"tutti:4222","pin":"` + string(tutti.DigestOf(nil)) + `","name":"web-*","groups":["web"],"expires":"2026-01-02T03:04:05Z","secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`
	f.Add("tutti-join-1.e30", uint64(0))
	for seed := range uint64(20) {
		f.Add(payload, seed)
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if _, err := identity.ParseToken(text); err == nil {
			t.Errorf("accepted %q, whose checksum nobody made", text)
		} else if tutti.CodeOf(err) != tutti.CodeInvalid || len(err.Error()) > 300 {
			t.Errorf("code %q of %v", tutti.CodeOf(err), err)
		}
		token, err := identity.ParseToken(" " + tokenText(hostile.Mangle([]byte(text), seed)) + "\n")
		if err != nil {
			return
		}
		if len(token.Secret) != 32 || token.ID == "" || token.Address == "" || token.Pin.Validate() != nil {
			t.Errorf("accepted %+v", token)
		}
		raw, err := json.Marshal(token)
		if err != nil {
			t.Fatalf("accepted, and cannot be encoded: %v", err)
		}
		again, err := identity.ParseToken(tokenText(raw))
		if diff := cmp.Diff(token, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("encoded again: %v %s", err, diff)
		}
	})
}

// FuzzEnrolRequest checks that Verify refuses a request after any field was
// changed.
func FuzzEnrolRequest(f *testing.F) {
	// a fixed seed, so each process that runs an input has the same key
	pair, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	key, errKey := pair.PublicKey()
	seed, err := pair.Seed()
	if err != nil || errKey != nil {
		f.Fatal(err, errKey)
	}
	good := identity.EnrolRequest{
		Token: "t1", Secret: []byte("secret"), Name: "web", Key: tutti.NodeKey(key), BoxKey: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32)),
	}
	if err := good.Sign(seed); err != nil {
		f.Fatal(err)
	}
	raw, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(30) {
		f.Add([]byte(`{}`), seed)
	}
	f.Add([]byte(`{"token":"t1s","secret":"ZWNyZXQ="}`), uint64(0))
	f.Fuzz(func(t *testing.T, over []byte, seed uint64) {
		var r identity.EnrolRequest
		if json.Unmarshal(hostile.Mangle(raw, seed), &r) != nil || json.Unmarshal(over, &r) != nil {
			return
		}
		err := r.Verify()
		if (err == nil) != cmp.Equal(good, r) {
			t.Errorf("%+v: %v", r, err)
		}
		if code := tutti.CodeOf(err); err != nil && code != tutti.CodeInvalid && code != tutti.CodeUnauthenticated {
			t.Errorf("code %q of %v", code, err)
		}
	})
}

// FuzzEnrolResponse checks that a response that a node accepts is complete, and
// can be stored and read again.
func FuzzEnrolResponse(f *testing.F) {
	authority, err := identity.Init(f.TempDir()+"/a", nil)
	if err != nil {
		f.Fatal(err)
	}
	answer := identity.EnrolResponse{
		Node: "web", JWT: "jwt", CA: string(authority.CA()), Bus: "tutti:4222", CodeKey: identity.EncodeCodePublicKey(authority.CodePublicKey()), Time: time.Now(),
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(30) {
		f.Add([]byte(`{}`), seed)
	}
	f.Fuzz(func(t *testing.T, over []byte, seed uint64) {
		var r identity.EnrolResponse
		if json.Unmarshal(hostile.Mangle(raw, seed), &r) != nil || json.Unmarshal(over, &r) != nil || r.Validate() != nil {
			return
		}
		dir := t.TempDir()
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
		again, err := identity.LoadMembership(dir)
		if err != nil || again.Node != r.Node || again.JWT != r.JWT || again.Bus != r.Bus || strings.TrimSpace(again.CA) == "" || !again.Time.Equal(r.Time.Round(time.Nanosecond)) {
			t.Errorf("kept %+v, read %+v, %v", r, again, err)
		}
	})
}
