package identity_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// TestPermissionToCompile: only a trusted key permits a compile, for this code and this fleet. A permission to compile is
// no permission to apply, and the other way round.
func TestPermissionToCompile(t *testing.T) {
	key, stranger := ed25519.NewKeyFromSeed(make([]byte, 32)), ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", 32)))
	manifest := []byte(`{"v":1,"environment":"production","files":{}}`)
	fleet, until := tutti.DigestOf([]byte("fleet")), time.Unix(1e9, 0).UTC()
	trust := identity.Trust{Fleet: fleet, Keys: []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}}
	permit := func(kind tutti.StatementKind, body any, by ed25519.PrivateKey) tutti.SignedCode {
		st, err := identity.State(kind, body, by)
		if err != nil {
			t.Fatal(err)
		}
		return tutti.SignedCode{Manifest: manifest, Statement: &st}
	}
	good := tutti.SignedCompile{Fleet: fleet, Environment: "production", Digest: tutti.DigestOf(manifest), Until: until}
	with := func(change func(*tutti.SignedCompile)) tutti.SignedCompile {
		out := good
		change(&out)
		return out
	}
	signed := permit(tutti.StatementCompile, good, key)
	if said, err := trust.Compile(signed); err != nil || said != good {
		t.Fatalf("%+v, %v", said, err)
	}
	if _, err := trust.Code(signed); err == nil || !strings.Contains(err.Error(), `a statement of kind "compile"`) {
		t.Errorf("a permission to compile was accepted as code: %v", err)
	}
	code := tutti.Signed{Fleet: fleet, Environment: "production", Counter: 1, Digest: tutti.DigestOf(manifest)}
	for _, tc := range []struct {
		reason string
		in     tutti.SignedCode
		says   string
	}{
		{"no statement", tutti.SignedCode{Manifest: manifest}, "nobody has signed"},
		{"a statement about code", permit(tutti.StatementCode, code, key), `of kind "code"`},
		{"a stranger's key", permit(tutti.StatementCompile, good, stranger), "not signed with a key"},
		{"another fleet", permit(tutti.StatementCompile, with(func(s *tutti.SignedCompile) { s.Fleet = tutti.DigestOf(nil) }), key), "for the fleet"},
		{"another environment", permit(tutti.StatementCompile, with(func(s *tutti.SignedCompile) { s.Environment = "canary" }), key), `for environment "canary"`},
		{"other code", permit(tutti.StatementCompile, with(func(s *tutti.SignedCompile) { s.Digest = tutti.DigestOf(nil) }), key), "for other code"},
		{"no end", permit(tutti.StatementCompile, with(func(s *tutti.SignedCompile) { s.Until = time.Time{} }), key), "permission to compile"},
	} {
		if _, err := trust.Compile(tc.in); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
	}
	for _, tc := range []struct {
		reason string
		now    time.Time
		ok     bool
	}{
		{"before the end", until.Add(-time.Second), true},
		{"at the end", until, false},
		{"a day before the end", until.Add(-tutti.MaxCompileFor), true},
		{"more than a day before the end", until.Add(-tutti.MaxCompileFor - time.Second), false},
	} {
		if err := good.At(tc.now); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}
