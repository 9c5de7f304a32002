package app

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
)

// testFleet is the id of a fleet.
var testFleet = tutti.DigestOf([]byte("a fleet"))

func newCodeKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The function `pinning` returns a membership that first trusts a key, and then the keys in a statement.
func pinning(first ed25519.PrivateKey, last, operators *tutti.Statement) identity.EnrolResponse {
	return identity.EnrolResponse{Fleet: testFleet, CodeKey: identity.EncodeCodePublicKey(operator.PublicOf(first)), Trust: last, Operators: operators}
}

// saysTrust returns a statement about code keys.
func saysTrust(t *testing.T, fleet tutti.Digest, counter uint64, keys []ed25519.PrivateKey, by ...ed25519.PrivateKey) *tutti.Statement {
	t.Helper()
	body := tutti.Trusted{Fleet: fleet, Counter: counter}
	for _, key := range keys {
		body.Keys = append(body.Keys, identity.EncodeCodePublicKey(operator.PublicOf(key)))
	}
	st, err := identity.State(tutti.StatementTrust, body, by...)
	if err != nil {
		t.Fatal(err)
	}
	return &st
}

// saysOperators returns a signed list with one operator.
func saysOperators(t *testing.T, fleet tutti.Digest, counter uint64, name string, by ...ed25519.PrivateKey) *tutti.Statement {
	t.Helper()
	st, err := identity.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: fleet, Counter: counter, Operators: []tutti.OperatorKey{
		{Operator: name, Key: identity.EncodeCodePublicKey(operator.PublicOf(by[0]))},
	}}, by...)
	if err != nil {
		t.Fatal(err)
	}
	return &st
}

// TestANodeThatJoinsAgainKeepsItsPins checks that joining again does not give a node another code key or other
// operators.
func TestANodeThatJoinsAgainKeepsItsPins(t *testing.T) {
	type keys = []ed25519.PrivateKey
	a, b, evil := newCodeKey(t), newCodeKey(t), newCodeKey(t)
	both, alone := saysTrust(t, testFleet, 1, keys{a, b}, a, b), saysTrust(t, testFleet, 2, keys{b}, b)
	list, later := saysOperators(t, testFleet, 3, "ada", a), saysOperators(t, testFleet, 4, "bob", a)
	elsewhere := pinning(evil, nil, nil)
	elsewhere.Fleet = tutti.DigestOf([]byte("another"))
	for what, tc := range map[string]struct {
		had, told identity.EnrolResponse
		refused   bool
		trusts    keys
		operators *tutti.Statement
	}{
		"the same":                          {pinning(a, nil, list), pinning(a, nil, list), false, keys{a}, list},
		"no list of operators":              {pinning(a, nil, list), pinning(a, nil, nil), false, keys{a}, list},
		"a later list":                      {pinning(a, nil, list), pinning(a, nil, later), false, keys{a}, later},
		"an earlier list":                   {pinning(a, nil, later), pinning(a, nil, list), false, keys{a}, later},
		"a list by nobody":                  {pinning(a, nil, list), pinning(a, nil, saysOperators(t, testFleet, 9, "eve", evil)), false, keys{a}, list},
		"another key":                       {pinning(a, nil, list), pinning(evil, nil, nil), true, nil, nil},
		"another key after a rotation":      {pinning(a, both, list), pinning(evil, nil, nil), true, nil, nil},
		"another key, by a statement":       {pinning(a, nil, list), pinning(evil, saysTrust(t, testFleet, 1, keys{evil}, evil), nil), true, nil, nil},
		"another fleet":                     {pinning(a, nil, list), elsewhere, true, nil, nil},
		"the next statement":                {pinning(a, nil, list), pinning(a, both, list), false, keys{a, b}, list},
		"statements in between are missing": {pinning(a, nil, list), pinning(b, alone, list), false, keys{a}, list},
		"a server that was put back":        {pinning(a, alone, nil), pinning(a, nil, nil), false, keys{b}, nil},
		"a newcomer":                        {identity.EnrolResponse{}, pinning(b, alone, nil), false, keys{b}, nil},
	} {
		got, err := machine.KeepPins(tc.had, tc.told, nil)
		if tc.refused {
			if tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), string(identity.KeyID(operator.PublicOf(a)))) || !strings.Contains(err.Error(), "--trust-code-key "+string(identity.KeyID(operator.PublicOf(evil)))) {
				t.Errorf("%s: %v, want that it is refused, with both keys", what, err)
			}
			if got, err := machine.KeepPins(tc.had, tc.told, named(evil)); err != nil || got.CodeKey != tc.told.CodeKey {
				t.Errorf("%s, on the word of somebody on the node: %v", what, err)
			}
			if _, err := machine.KeepPins(tc.had, tc.told, named(b)); tutti.CodeOf(err) != tutti.CodeRefused {
				t.Errorf("%s, though somebody on the node has named another key: %v", what, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		now, err := got.Trusts()
		if err != nil || len(now.Keys) != len(tc.trusts) || got.Operators != tc.operators {
			t.Errorf("%s: %d keys, operators %v, %v", what, len(now.Keys), got.Operators, err)
			continue
		}
		for _, key := range tc.trusts {
			if !now.Has(operator.PublicOf(key)) {
				t.Errorf("%s: a key is missing", what)
			}
		}
	}
}

// The function `named` returns the ids of keys.
func named(keys ...ed25519.PrivateKey) (out []string) {
	for _, key := range keys {
		out = append(out, string(identity.KeyID(operator.PublicOf(key))))
	}
	return out
}

// If an administrator names a code key on the node, the node trusts no other key. If the node trusted other keys,
// too, a server could bring back a rotated key with an old statement.
func TestAKeyThatIsNamedIsTheOnlyOne(t *testing.T) {
	type keys = []ed25519.PrivateKey
	a, b := newCodeKey(t), newCodeKey(t)
	both, alone := saysTrust(t, testFleet, 1, keys{a, b}, a, b), saysTrust(t, testFleet, 2, keys{b}, b)
	for what, tc := range map[string]struct {
		told identity.EnrolResponse
		keys []string
		code tutti.Code
	}{
		"the rotation is over":          {pinning(a, alone, nil), named(b), ""},
		"a statement of before":         {pinning(a, both, nil), named(b), tutti.CodeRefused},
		"both, as in a rotation":        {pinning(a, both, nil), named(a, b), ""},
		"more than the server has":      {pinning(a, alone, nil), named(a, b), ""},
		"a key of before any statement": {pinning(a, nil, nil), named(b), tutti.CodeRefused},
	} {
		for who, had := range map[string]identity.EnrolResponse{"a node": pinning(a, alone, nil), "a newcomer": {}} {
			got, err := machine.KeepPins(had, tc.told, tc.keys)
			if tutti.CodeOf(err) != tc.code || err == nil && got.Trust != tc.told.Trust {
				t.Errorf("%s, %s: %v, want code %q", who, what, err, tc.code)
			}
		}
	}
}

// An administrator names a code key on the node. If the node trusts this key already, it keeps its list of operators
// and the id of its fleet.
func TestAKeyThatIsNamedKeepsTheRest(t *testing.T) {
	a, other := newCodeKey(t), newCodeKey(t)
	list, later := saysOperators(t, testFleet, 3, "ada", a), saysOperators(t, testFleet, 4, "bob", a)
	elsewhere := pinning(a, nil, nil)
	elsewhere.Fleet = tutti.DigestOf([]byte("another"))
	for what, tc := range map[string]struct {
		told      identity.EnrolResponse
		key       ed25519.PrivateKey
		code      tutti.Code
		operators *tutti.Statement
	}{
		"no list of operators":         {pinning(a, nil, nil), a, "", list},
		"a later list":                 {pinning(a, nil, later), a, "", later},
		"another key, and no list":     {pinning(other, nil, nil), other, "", nil},
		"another fleet, with this key": {elsewhere, a, tutti.CodeRefused, nil},
	} {
		got, err := machine.KeepPins(pinning(a, nil, list), tc.told, named(tc.key))
		if tutti.CodeOf(err) != tc.code || err == nil && got.Operators != tc.operators {
			t.Errorf("%s: operators %v, %v, want code %q", what, got.Operators, err, tc.code)
		}
	}
}

// TestJoinAgainAtAnotherFleet lets a node join another fleet. The join changes nothing on the node until an
// administrator names the key of that fleet there.
func TestJoinAgainAtAnotherFleet(t *testing.T) {
	server := func() *pusher { return newPusher(t, startServer(t)) }
	one, two := server(), server()
	keys := named(load(t, two.conn.OperatorDir).CodeKey)
	dir := joinNode(t, one.server, "web-01")
	before := trusted(t, dir)
	token, err := two.server.CreateToken(t.Context(), api.CreateToken{Name: "web-01"})
	if err != nil {
		t.Fatal(err)
	}
	again := machine.JoinOptions{Dir: dir, Token: token.Text, Again: true}
	if _, err := machine.Join(t.Context(), again); tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), keys[0]) {
		t.Errorf("join again: %v, want that it is refused, with the key", err)
	}
	if now := trusted(t, dir); now.Fleet != before.Fleet || !now.Has(before.Keys[0]) {
		t.Errorf("the node trusts %+v", now)
	}
	again.CodeKeys = keys
	if _, err := machine.Join(t.Context(), again); err != nil {
		t.Errorf("with the key: %v", err)
	}
	if now := trusted(t, dir); string(identity.KeyID(now.Keys[0])) != keys[0] {
		t.Errorf("the node trusts %+v", now)
	}
}

// TestAListOfARotatedKey checks that a node ignores a list of operators signed by a rotated key. The node ignores
// such a list after the rotation and after a restart. A list signed by a present key replaces the old list, even if
// its counter is lower.
func TestAListOfARotatedKey(t *testing.T) {
	type keys = []ed25519.PrivateKey
	f := startRotated(t)
	m := f.join(t, "web")
	dir := machine.IdentityDir(m.dir)
	stolen, next, thief, ada := load(t, f.admin.OperatorDir).CodeKey, newCodeKey(t), newCodeKey(t), newCodeKey(t)
	on, err := identity.LoadMembership(dir)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := identity.FleetOf(on)
	if err != nil {
		t.Fatal(err)
	}
	s, err := machine.NewSigners(dir, on)
	if err != nil {
		t.Fatal(err)
	}
	list := func(counter uint64, signer ed25519.PrivateKey, by ...ed25519.PrivateKey) tutti.Statement {
		st, err := identity.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: fleet, Counter: counter, Operators: []tutti.OperatorKey{
			{Operator: "admin", Key: identity.EncodeCodePublicKey(operator.PublicOf(signer))},
		}}, by...)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	acts := func(by ed25519.PrivateKey) error {
		st, err := identity.State(tutti.StatementAction, tutti.SignedAction{
			Fleet: fleet, Operator: "admin", Action: tutti.RemoteEnable, Nodes: []tutti.NodeName{"web"}, Until: time.Now().Add(time.Minute), Nonce: "one",
		}, by)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Action(&st)
		return err
	}
	if err := s.Take(list(tutti.MaxCounter, thief, stolen)); err != nil {
		t.Fatal(err)
	}
	if err := acts(thief); err != nil {
		t.Errorf("before the rotation: %v", err)
	}
	if err := s.Follow([]tutti.Statement{*saysTrust(t, fleet, 1, keys{stolen, next}, stolen, next), *saysTrust(t, fleet, 2, keys{next}, next)}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"after the rotation", "after a start"} {
		if err := acts(thief); tutti.CodeOf(err) != tutti.CodeRefused || s.Listed() != 0 {
			t.Errorf("%s: %v, list %d, want that the list is nobody's word", when, err, s.Listed())
		}
		if _, err := s.Action(nil); tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("%s the word of the server is enough: %v", when, err)
		}
		if on, err = identity.LoadMembership(dir); err == nil {
			s, err = machine.NewSigners(dir, on)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Take(list(7, ada, next)); err != nil {
		t.Fatal(err)
	}
	if err := acts(ada); err != nil {
		t.Errorf("by the list of the new key: %v", err)
	}
}
