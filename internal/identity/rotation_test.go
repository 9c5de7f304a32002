package identity_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/wire"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sets(t *testing.T, a *identity.Authority) tutti.KeySets {
	t.Helper()
	out, err := a.KeySets()
	must(t, err)
	return out
}

// The function `reload` loads the authority from the directory, as a new process would.
func reload(t *testing.T, dir string) *identity.Authority {
	t.Helper()
	a, err := identity.Load(dir)
	must(t, err)
	return a
}

// The function `write` makes a directory with these files of key material.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// Each phase is on disk as soon as it is entered. Each step may be repeated.
func TestRotationPhases(t *testing.T) {
	a, dir := newAuthority(t, "tutti.example.net")
	first := sets(t, a)
	wantCode(t, "a phase before there are two sets", a.EnterRotation(tutti.RotationSwitched), tutti.CodeConflict)
	must(t, a.FinishRotation())
	must(t, a.AbandonRotation())
	must(t, a.BeginRotation())
	begun := sets(t, a)
	must(t, a.BeginRotation())
	if got := sets(t, a); !cmp.Equal(got, begun) || got.Present != first.Present || got.Next == (tutti.KeySet{}) || got.Next == got.Present {
		t.Errorf("begun twice: %+v, first %+v", got, begun)
	}
	for _, phase := range []tutti.RotationPhase{tutti.RotationSwitched, tutti.RotationReturning, tutti.RotationBegun, tutti.RotationSwitched} {
		must(t, a.EnterRotation(phase))
		must(t, a.EnterRotation(phase))
		want := begun
		want.Phase = phase
		if diff := cmp.Diff(want, sets(t, reload(t, dir))); diff != "" {
			t.Errorf("%s: -want +got\n%s", phase, diff)
		}
	}
	must(t, a.FinishRotation())
	want := tutti.KeySets{Present: begun.Next, Was: []tutti.Digest{first.Present.CA}}
	for reason, got := range map[string]tutti.KeySets{"in memory": sets(t, a), "on disk": sets(t, reload(t, dir))} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("finished, %s: -want +got\n%s", reason, diff)
		}
	}
	must(t, a.BeginRotation())
	must(t, a.AbandonRotation())
	if diff := cmp.Diff(want, sets(t, reload(t, dir))); diff != "" {
		t.Errorf("abandoned: -want +got\n%s", diff)
	}
	for name, content := range contents(t, dir) {
		if strings.Contains(content, "PRIVATE") && !slices.Contains([]string{"ca.key", "server.key", "code.key"}, name) {
			t.Errorf("%s has a private key", name)
		}
	}
}

// If the server is killed while it finishes a rotation, the next start completes the rotation from any point.
func TestAnEndThatIsCutOff(t *testing.T) {
	a, dir := newAuthority(t)
	node, err := identity.NewNode()
	must(t, err)
	_, err = a.Revoke(node.Key)
	must(t, err)
	must(t, a.BeginRotation())
	must(t, a.EnterRotation(tutti.RotationSwitched))
	before := contents(t, dir)
	before["rotation.json"] = strings.Replace(before["rotation.json"], `"switched"`, `"finished"`, 1)
	must(t, a.FinishRotation())
	after := contents(t, dir)
	want := sets(t, a)
	order := []string{"bus-names.json", "bus-nodes.jwt", "bus-operator.nk", "bus-sys.nk", "bus-log.nk", "bus-nodes.nk", "ca.key", "server.key", "server.crt", "ca.crt"}
	for i := range len(order) + 1 {
		files := map[string]string{}
		for name, content := range before {
			files[name] = content
		}
		for _, name := range order[:i] {
			files[name] = after[name]
		}
		at := write(t, files)
		got := reload(t, at)
		if diff := cmp.Diff(want, sets(t, got)); diff != "" {
			t.Errorf("after %d files: -want +got\n%s", i, diff)
		}
		account, err := jwt.DecodeAccountClaims(got.NodesAccount())
		must(t, err)
		if _, revoked := account.Revocations[string(node.Key)]; !revoked {
			t.Errorf("after %d files the revoked key is good again", i)
		}
		now := contents(t, at)
		delete(now, "bus-nodes.jwt") // signed again
		wanted := map[string]string{}
		for name, content := range after {
			if name != "bus-nodes.jwt" {
				wanted[name] = content
			}
		}
		if diff := cmp.Diff(wanted, now); diff != "" {
			t.Errorf("after %d files, on disk: -want +got\n%s", i, diff)
		}
	}
}

func TestADamagedRotation(t *testing.T) {
	a, dir := newAuthority(t)
	must(t, a.BeginRotation())
	good := contents(t, dir)
	for reason, content := range map[string]string{
		"empty": "", "cut": good["rotation.json"][:len(good["rotation.json"])/2], "no set": `{"phase":"begun"}`,
		"another phase": strings.Replace(good["rotation.json"], `"begun"`, `"turned"`, 1),
		"another key":   strings.Replace(good["rotation.json"], `"bus-nodes.nk": "SA`, `"bus-nodes.nk": "SX`, 1),
	} {
		good["rotation.json"] = content
		if _, err := identity.Load(write(t, good)); !errors.Is(err, identity.ErrCorrupt) || !strings.Contains(err.Error(), "rotation.json") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// A client may know only one of the two CAs, or only the digest of the old one. Until the end of the rotation, the
// server shows each client a certificate that the client can check.
func TestTheServerShowsWhatAClientCanCheck(t *testing.T) {
	a, _ := newAuthority(t)
	old, oldPin := a.CA(), a.Pin()
	must(t, a.BeginRotation())
	both := a.CA()
	next := strings.TrimPrefix(string(both), string(old))
	names := true
	knows := func(ca []byte) error {
		config, err := identity.ClientTLS(ca)
		must(t, err)
		if !names {
			config.NextProtos = nil
		}
		_, err = ask(t, a.HTTPS(), config)
		// the client sent no certificate, and the error comes after the TLS handshake
		if tutti.CodeOf(err) == tutti.CodeUnauthenticated {
			return nil
		}
		return err
	}
	pinned := func() error {
		_, err := ask(t, a.HTTPS(), identity.PinnedTLS(oldPin))
		if tutti.CodeOf(err) == tutti.CodeUnauthenticated {
			return nil
		}
		return err
	}
	check := func(when string, oldIsKnown bool) {
		t.Helper()
		if err := knows(old); (err == nil) != oldIsKnown {
			t.Errorf("%s, who knows the old CA: %v", when, err)
		}
		names = false
		if err := knows(old); (err == nil) != oldIsKnown {
			t.Errorf("%s, who is of an earlier release: %v", when, err)
		}
		names = true
		if err := pinned(); (err == nil) != oldIsKnown {
			t.Errorf("%s, who knows the old digest: %v", when, err)
		}
		if err := knows([]byte(next)); err != nil {
			t.Errorf("%s, who knows the new CA: %v", when, err)
		}
		if err := knows(both); err != nil {
			t.Errorf("%s, who knows both: %v", when, err)
		}
	}
	check("begun", true)
	must(t, a.EnterRotation(tutti.RotationSwitched))
	check("switched", true)
	must(t, a.FinishRotation())
	check("finished", false)
}

// A node accepts a membership from the server. There are two exceptions: the membership of another node, and a
// membership with which the node could not connect any more.
func TestFollow(t *testing.T) {
	a, home := newAuthority(t)
	other, _ := newAuthority(t)
	node, err := identity.NewNode()
	must(t, err)
	stranger, err := identity.NewNode()
	must(t, err)
	jwtOf := func(n identity.NodeIdentity) string {
		text, err := a.NodeJWT(n.Key, "web")
		must(t, err)
		return text
	}
	old, pin := string(a.CA()), a.Pin()
	m := identity.EnrolResponse{Node: "web", JWT: jwtOf(node), CA: old, Bus: "h:1", CodeKey: identity.EncodeCodePublicKey(a.CodePublicKey())}
	must(t, a.BeginRotation())
	must(t, a.EnterRotation(tutti.RotationSwitched))
	both := string(a.CA())
	renewed := jwtOf(node)
	if before, after := issuer(t, m.JWT), issuer(t, renewed); before == after {
		t.Error("after the switch the same key signs")
	}
	operator, err := a.IssueOperator("ada")
	must(t, err)
	dir := filepath.Join(t.TempDir(), "ada")
	must(t, operator.Write(dir))
	for _, tc := range []struct {
		reason string
		should wire.ToPin
		want   tutti.Code // empty: taken
	}{
		{"nothing", wire.ToPin{}, ""},
		{"both CAs", wire.ToPin{CA: both}, ""},
		{"both CAs and a JWT", wire.ToPin{CA: both, JWT: renewed}, ""},
		{"only another CA", wire.ToPin{CA: string(other.CA())}, tutti.CodeRefused},
		{"only the new CA, on a connection that the old one proves", wire.ToPin{CA: strings.TrimPrefix(both, old)}, tutti.CodeRefused},
		{"text", wire.ToPin{CA: "CA"}, tutti.CodeInvalid},
		{"a certificate that is not of a CA", wire.ToPin{CA: old + contents(t, dir)["operator.pem"]}, tutti.CodeInvalid},
		{"too many", wire.ToPin{CA: strings.Repeat(old, 9)}, tutti.CodeInvalid},
		{"a JWT of another key", wire.ToPin{CA: both, JWT: jwtOf(stranger)}, tutti.CodeInvalid},
		{"no JWT", wire.ToPin{CA: both, JWT: "x"}, tutti.CodeInvalid},
	} {
		next, err := m.Follow(tc.should, pin)
		if err != nil {
			wantCode(t, tc.reason, err, tc.want)
			if !cmp.Equal(next, m) {
				t.Errorf("%s: it is refused, and changes the membership", tc.reason)
			}
			continue
		}
		want := m
		if tc.should.CA != "" {
			want.CA = tc.should.CA
		}
		if tc.should.JWT != "" {
			want.JWT = tc.should.JWT
		}
		if tc.want != "" || !cmp.Equal(next, want) {
			t.Errorf("%s: taken as %+v", tc.reason, next)
		}
	}
	must(t, a.FinishRotation())
	fleet, err := identity.FleetOf(m)
	must(t, err)
	again, foreign := m, m
	again.CA, again.Was = string(a.CA()), sets(t, a).Was
	if got, err := identity.FleetOf(again); err != nil || got != fleet {
		t.Errorf("after the rotation the fleet is %s, %v, want %s", got, err, fleet)
	}
	foreign.CA = string(other.CA())
	if got, err := identity.FleetOf(foreign); err != nil || got == fleet {
		t.Errorf("another fleet is %s, %v", got, err)
	}
	if got := reload(t, home).Fleet(); got != fleet || got != a.Fleet() {
		t.Errorf("the server's fleet is %s, and after a start %s, want %s", a.Fleet(), got, fleet)
	}
}

func issuer(t *testing.T, text string) string {
	t.Helper()
	out, err := identity.JWTIssuer(text)
	must(t, err)
	return out
}

// An older command line knows only one CA, so its operator gets a certificate of the old CA. The old certificate
// is valid until the end of the rotation. After the end of the rotation the server refuses the certificate, even
// on connections that are already open.
func TestOperatorsWhileTheCAIsRotated(t *testing.T) {
	a, _ := newAuthority(t)
	key, err := identity.NewOperatorKey()
	must(t, err)
	request, err := key.Request("ada")
	must(t, err)
	must(t, a.BeginRotation())
	must(t, a.EnterRotation(tutti.RotationSwitched))
	both := sets(t, a)
	older, err := a.SignOperator("ada", request)
	must(t, err)
	newer, err := a.SignFollower("ada", request)
	must(t, err)
	if older.Signer != both.Present.CA || newer.Signer != both.Next.CA {
		t.Errorf("signed by %s and %s, the sets are %+v", older.Signer, newer.Signer, both)
	}
	asks := func(issued api.IssuedOperator, ca []byte) error {
		t.Helper()
		issued.CA = ca
		bundle, err := key.Bundle(issued, nil)
		must(t, err)
		_, err = ask(t, a.HTTPS(), bundle.TLS())
		return err
	}
	if err := asks(older, older.CA); err != nil {
		t.Errorf("who knows the old CA alone: %v", err)
	}
	if err := asks(newer, newer.CA); err != nil {
		t.Errorf("who knows both: %v", err)
	}
	must(t, a.FinishRotation())
	if err := asks(older, newer.CA); err == nil {
		t.Error("at the end the old certificate is taken")
	}
	if err := asks(newer, newer.CA); err != nil {
		t.Errorf("at the end: %v", err)
	}
}
