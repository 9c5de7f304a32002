package identity_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

func params(a *identity.Authority) identity.TokenParams {
	return identity.TokenParams{
		Address: "tutti.example.net:8140", Bus: "tutti.example.net:4222", Pin: a.Pin(),
		Name: "storage-*", Groups: []tutti.GroupName{"storage"}, TTL: time.Hour,
	}
}

func TestToken(t *testing.T) {
	a, _ := newAuthority(t)
	text, id, hash, err := identity.NewToken(params(a))
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text, " \n\t/+=") {
		t.Errorf("the token is not one plain line: %q", text)
	}
	token, err := identity.ParseToken(" " + text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	want := params(a)
	want.TTL = 0
	if diff := cmp.Diff(want, token.TokenParams); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if token.ID != id || !identity.MatchesSecret(hash, token.Secret) || len(token.Secret) != 32 {
		t.Errorf("id %q, want %q; secret of %d bytes", token.ID, id, len(token.Secret))
	}
	if identity.MatchesSecret(hash, append([]byte{1}, token.Secret[1:]...)) || identity.MatchesSecret(hash, nil) {
		t.Error("another secret matches")
	}
	if d := time.Until(token.Expires); d < 59*time.Minute || d > time.Hour {
		t.Errorf("expires in %s, want an hour", d)
	}
	other, otherID, otherHash, err := identity.NewToken(params(a))
	if err != nil || other == text || otherID == id || otherHash == hash {
		t.Errorf("two tokens are the same, or %v", err)
	}
}

func TestAlteredToken(t *testing.T) {
	a, _ := newAuthority(t)
	text, _, _, err := identity.NewToken(params(a))
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		for _, c := range []byte{'A', 'b', '0', '_', '.', ' '} {
			if text[i] == c {
				continue
			}
			if _, err := identity.ParseToken(text[:i] + string(c) + text[i+1:]); tutti.CodeOf(err) != tutti.CodeInvalid {
				t.Fatalf("character %d replaced by %q: %v, want code invalid", i, c, err)
			}
		}
		if _, err := identity.ParseToken(text[:i]); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Fatalf("cut after %d: %v, want code invalid", i, err)
		}
	}
	for _, bad := range []string{"", "tutti-join-1.", "tutti-join-2" + text[12:], text + text, "tutti-join-1." + base64.RawURLEncoding.EncodeToString([]byte("{}"))} {
		_, err := identity.ParseToken(bad)
		wantCode(t, bad, err, tutti.CodeInvalid)
	}
}

func TestNewTokenRefuses(t *testing.T) {
	a, _ := newAuthority(t)
	for _, c := range []struct {
		reason string
		spoil  func(*identity.TokenParams)
	}{
		{"no time to live", func(p *identity.TokenParams) { p.TTL = 0 }},
		{"expired already", func(p *identity.TokenParams) { p.TTL = -time.Second }},
		{"no pin", func(p *identity.TokenParams) { p.Pin = "" }},
	} {
		p := params(a)
		c.spoil(&p)
		_, _, _, err := identity.NewToken(p)
		wantCode(t, c.reason, err, tutti.CodeInvalid)
	}
}

func TestEnrolRequest(t *testing.T) {
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	other, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	signed := func(seed []byte) identity.EnrolRequest {
		r := identity.EnrolRequest{Token: "t1", Secret: []byte("secret"), Name: "web", Key: node.Key, BoxKey: node.BoxKey()}
		if err := r.Sign(seed); err != nil {
			t.Fatal(err)
		}
		return r
	}
	good := signed(node.Seed)
	if err := good.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason string
		spoil  func(*identity.EnrolRequest)
		want   tutti.Code
	}{
		{"another token", func(r *identity.EnrolRequest) { r.Token = "t2" }, tutti.CodeUnauthenticated},
		{"another secret", func(r *identity.EnrolRequest) { r.Secret = []byte("secreT") }, tutti.CodeUnauthenticated},
		{"a boundary moved", func(r *identity.EnrolRequest) { r.Token, r.Secret = "t1s", []byte("ecret") }, tutti.CodeUnauthenticated},
		{"another name", func(r *identity.EnrolRequest) { r.Name = "web.example.net" }, tutti.CodeUnauthenticated},
		{"a bad name", func(r *identity.EnrolRequest) { r.Name = "*" }, tutti.CodeInvalid},
		{"another's key", func(r *identity.EnrolRequest) { r.Key = other.Key }, tutti.CodeUnauthenticated},
		{"no key", func(r *identity.EnrolRequest) { r.Key = "" }, tutti.CodeInvalid},
		{"a key that is none", func(r *identity.EnrolRequest) { r.Key = tutti.NodeKey("U" + strings.Repeat("A", 55)) }, tutti.CodeInvalid},
		{"another box key", func(r *identity.EnrolRequest) { r.BoxKey = other.BoxKey() }, tutti.CodeUnauthenticated},
		{"no box key", func(r *identity.EnrolRequest) { r.BoxKey = "" }, tutti.CodeInvalid},
		{"a box key that is none", func(r *identity.EnrolRequest) { r.BoxKey = "AAAA" }, tutti.CodeInvalid},
		{"no signature", func(r *identity.EnrolRequest) { r.Signature = nil }, tutti.CodeUnauthenticated},
		{"signed with another key", func(r *identity.EnrolRequest) { *r = signed(other.Seed) }, tutti.CodeUnauthenticated},
	} {
		r := good
		c.spoil(&r)
		wantCode(t, c.reason, r.Verify(), c.want)
	}
	if err := good.Sign([]byte("rubbish")); err == nil {
		t.Error("signed with rubbish")
	}
}

func TestMembershipOnDisk(t *testing.T) {
	a, _ := newAuthority(t)
	r := identity.EnrolResponse{
		Node: "web", JWT: "jwt", CA: string(a.CA()), Bus: "h:4222",
		CodeKey: identity.EncodeCodePublicKey(a.CodePublicKey()), Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := identity.LoadMembership(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	key, err := identity.ParseCodePublicKey(got.CodeKey)
	if err != nil || !key.Equal(a.CodePublicKey()) {
		t.Errorf("the code key came back as another: %v", err)
	}
	for _, c := range []struct {
		reason string
		spoil  func(*identity.EnrolResponse)
	}{
		{"no CA", func(r *identity.EnrolResponse) { r.CA = "" }},
		{"no JWT", func(r *identity.EnrolResponse) { r.JWT = "" }},
		{"no code key", func(r *identity.EnrolResponse) { r.CodeKey = "" }},
		{"no name", func(r *identity.EnrolResponse) { r.Node = "" }},
		{"no bus", func(r *identity.EnrolResponse) { r.Bus = "" }},
	} {
		bad := r
		c.spoil(&bad)
		wantCode(t, c.reason, bad.Validate(), tutti.CodeInvalid)
	}
}

func TestManifest(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	otherPublic, otherPrivate, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	manifest := []byte(`{"a":"b"}`)
	good := identity.SignManifest(private, "production", manifest)
	if err := identity.VerifyManifest(public, "production", manifest, good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason      string
		key         ed25519.PublicKey
		environment string
		manifest    string
		signature   []byte
	}{
		{"another key", otherPublic, "production", string(manifest), good},
		{"signed with another key", public, "production", string(manifest), identity.SignManifest(otherPrivate, "production", manifest)},
		{"another environment", public, "test", string(manifest), good},
		{"another manifest", public, "production", "{}", good},
		{"a boundary moved", public, "production{", string(manifest[1:]), good},
		{"signed as it is", public, "production", string(manifest), ed25519.Sign(private, manifest)},
		{"no signature", public, "production", string(manifest), nil},
		{"a cut signature", public, "production", string(manifest), good[:63]},
		{"no key", nil, "production", string(manifest), good},
	} {
		err := identity.VerifyManifest(c.key, c.environment, []byte(c.manifest), c.signature)
		wantCode(t, c.reason, err, tutti.CodeRefused)
	}
}
