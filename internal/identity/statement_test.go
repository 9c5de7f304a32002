package identity_test

import (
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

var theFleet = tutti.DigestOf([]byte("the fleet"))

func codeKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(key ed25519.PrivateKey) string {
	return identity.EncodeCodePublicKey(key.Public().(ed25519.PublicKey))
}

func state(t *testing.T, kind tutti.StatementKind, body any, keys ...ed25519.PrivateKey) tutti.Statement {
	t.Helper()
	st, err := identity.State(kind, body, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func refused(t *testing.T, reason string, err error, says string) {
	t.Helper()
	if says == "" && err == nil {
		return
	}
	if err == nil || says == "" || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %q", reason, err, says)
	}
}

// TestStatementsOfCode checks that the signature covers each field of the statement. A statement of
// another kind must not be accepted as a statement about code.
func TestStatementsOfCode(t *testing.T) {
	key, other := codeKey(t), codeKey(t)
	trust, err := identity.NewTrust(theFleet, pemOf(key), nil)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{}})
	if err != nil {
		t.Fatal(err)
	}
	said := tutti.Signed{Fleet: theFleet, Environment: "production", Counter: 7, Digest: tutti.DigestOf(manifest)}
	altered := func(old, text string) tutti.Statement {
		st := state(t, tutti.StatementCode, said, key)
		st.Body = []byte(strings.Replace(string(st.Body), old, text, 1))
		return st
	}
	with := func(change func(*tutti.Signed)) tutti.Statement {
		body := said
		change(&body)
		return state(t, tutti.StatementCode, body, key)
	}
	many := state(t, tutti.StatementCode, said, other, other, other, other, key)
	long, nobodys := state(t, tutti.StatementCode, said, key), state(t, tutti.StatementCode, said, key)
	long.Signatures = append(long.Signatures, tutti.Signature{Key: tutti.DigestOf(nil), Signature: make([]byte, 1<<20)})
	nobodys.Signatures = append(nobodys.Signatures, tutti.Signature{Key: "somebody's", Signature: make([]byte, 64)})
	book := state(t, tutti.StatementCode, said, key)
	book.Body = append(book.Body, make([]byte, 1<<20)...)
	renamed := state(t, tutti.StatementPlans, said, key)
	renamed.Kind = tutti.StatementCode
	for reason, tc := range map[string]struct {
		st   tutti.Statement
		says string
	}{
		"as it was signed":            {state(t, tutti.StatementCode, said, key), ""},
		"with one more key":           {state(t, tutti.StatementCode, said, other, key), ""},
		"by another key":              {state(t, tutti.StatementCode, said, other), "not signed"},
		"by nobody":                   {state(t, tutti.StatementCode, said), "not signed"},
		"more signatures than are":    {many, "not signed"},
		"a signature of a megabyte":   {long, "a signature of 1048576 bytes"},
		"a signature of no key":       {nobodys, "without a key"},
		"a book":                      {book, "at most 1048576"},
		"another counter":             {altered(`"counter":7`, `"counter":8`), "not signed"},
		"another environment":         {with(func(s *tutti.Signed) { s.Environment = "staging" }), `signed for environment "staging"`},
		"another fleet":               {with(func(s *tutti.Signed) { s.Fleet = tutti.DigestOf(nil) }), "for the fleet"},
		"other code":                  {with(func(s *tutti.Signed) { s.Digest = tutti.DigestOf(nil) }), "other code"},
		"no counter":                  {with(func(s *tutti.Signed) { s.Counter = 0 }), "counter 0"},
		"a counter without a next":    {with(func(s *tutti.Signed) { s.Counter = tutti.MaxCounter + 1 }), "counter"},
		"a word of a later release":   {altered(`{`, `{"until":"never",`), "unknown field"},
		"another kind":                {state(t, tutti.StatementPlans, said, key), "instead of kind"},
		"another kind, under a cover": {renamed, "not signed"},
	} {
		got, err := trust.Code(tutti.SignedCode{Manifest: manifest, Statement: &tc.st})
		refused(t, reason, err, tc.says)
		if err == nil && got != said {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	old, err := trust.Code(tutti.SignedCode{Manifest: manifest, Signature: identity.SignManifest(key, "production", manifest)})
	if err != nil || !old.Old() {
		t.Errorf("the form of before: %+v, %v", old, err)
	}
}

// TestStatementsOfCodeKeys checks that statements about code keys are accepted only in order.
func TestStatementsOfCodeKeys(t *testing.T) {
	key, next, evil := codeKey(t), codeKey(t), codeKey(t)
	first, err := identity.NewTrust(theFleet, pemOf(key), nil)
	if err != nil {
		t.Fatal(err)
	}
	say := func(counter uint64, keys []ed25519.PrivateKey, by ...ed25519.PrivateKey) tutti.Statement {
		body := tutti.Trusted{Fleet: theFleet, Counter: counter}
		for _, k := range keys {
			body.Keys = append(body.Keys, pemOf(k))
		}
		return state(t, tutti.StatementTrust, body, by...)
	}
	of := func(keys ...ed25519.PrivateKey) []ed25519.PrivateKey { return keys }
	both, alone := say(1, of(key, next), key, next), say(2, of(next), next)
	second, err := first.Follow(both)
	if err != nil {
		t.Fatal(err)
	}
	third, err := second.Follow(alone)
	if err != nil {
		t.Fatal(err)
	}
	for reason, tc := range map[string]struct {
		from identity.Trust
		st   tutti.Statement
		says string
	}{
		"again":                      {third, both, ""},
		"out of order":               {first, alone, "does not follow"},
		"by a key of its own":        {first, say(1, of(evil), evil), "not signed by a key that is trusted now"},
		"by the key of before":       {third, say(3, of(key, evil), key, evil), "not signed by a key that is trusted now"},
		"a key that nobody has":      {first, say(1, of(key, evil), key), "has not signed the statement"},
		"three keys":                 {first, say(1, of(key, next, evil), key, next, evil), "there are 1 to 2 keys"},
		"no key":                     {first, say(1, nil, key), "0 keys"},
		"one key twice":              {first, say(1, of(key, key), key), "the same key twice"},
		"of another fleet":           {first, state(t, tutti.StatementTrust, tutti.Trusted{Fleet: tutti.DigestOf(nil), Counter: 1, Keys: []string{pemOf(key)}}, key), "for the fleet"},
		"a text that is not a key":   {first, state(t, tutti.StatementTrust, tutti.Trusted{Fleet: theFleet, Counter: 1, Keys: []string{"x"}}, key), "not a code-signing public key"},
		"the new key, once it signs": {second, say(2, of(next), next), ""},
	} {
		_, err := tc.from.Follow(tc.st)
		refused(t, reason, err, tc.says)
	}
	if !third.Has(next.Public().(ed25519.PublicKey)) || third.Has(key.Public().(ed25519.PublicKey)) || third.Counter != 2 {
		t.Errorf("after the rotation %+v is trusted", third)
	}
	if newcomer, err := identity.NewTrust(theFleet, pemOf(next), &alone); err != nil || newcomer.Counter != 2 || len(newcomer.Keys) != 1 {
		t.Errorf("a newcomer trusts %+v, %v", newcomer, err)
	}
	unproven := say(2, of(next), key)
	if _, err := identity.NewTrust(theFleet, pemOf(next), &unproven); err == nil {
		t.Error("a newcomer trusts a key that nobody has shown")
	}
	all := func(of ...tutti.Statement) []tutti.Statement { return of }
	own, newer := key.Public().(ed25519.PublicKey), next.Public().(ed25519.PublicKey)
	for reason, tc := range map[string]struct {
		kept, shown []tutti.Statement
		own         ed25519.PublicKey
		trusts      int // keys
		says        string
	}{
		"nothing":                             {nil, nil, own, 0, ""},
		"the beginning":                       {nil, all(both), own, 2, ""},
		"all of it, with the first key":       {nil, all(both, alone), own, 0, "statement 2, the last one, is not signed by a code key in this directory"},
		"all of it, with the last key":        {nil, all(both, alone), newer, 1, ""},
		"what was kept, and more":             {all(both), all(both, alone), newer, 1, ""},
		"more, with a key that was rotated":   {all(both), all(both, alone), own, 0, "not signed by a code key in this directory"},
		"the rotated key, again":              {nil, all(both, say(2, of(key, next), key, next)), newer, 2, ""},
		"the rotated key, again, by itself":   {nil, all(both, say(2, of(key), key)), newer, 0, "not signed by a code key in this directory"},
		"less than was kept":                  {all(both, alone), all(both), newer, 1, ""},
		"none, and some are kept":             {all(both, alone), nil, newer, 1, ""},
		"by others alone":                     {nil, all(say(1, of(evil), evil)), own, 0, "not signed by a code key in this directory"},
		"the end by nobody":                   {nil, all(both, say(2, of(next), evil)), own, 0, "not signed by a key that is trusted now"},
		"the end by nobody, and some is kept": {all(both), all(both, say(2, of(next), evil)), own, 0, "not signed by a key that is trusted now"},
		"the beginning by nobody":             {nil, all(say(1, of(evil, next), evil), alone), newer, 0, "has not signed the statement"},
		"others than were kept":               {all(both, alone), all(both, say(2, of(key), key)), newer, 0, "statement 2 differs from the one that was seen before"},
		"a number of somebody's choice":       {nil, all(say(700, of(key), key)), own, 0, "statement 700 is where statement 1 should be"},
		"one of them twice":                   {nil, all(both, both), own, 0, "statement 1 is where statement 2 should be"},
	} {
		got, chain, err := identity.Chain(theFleet, tc.kept, tc.shown, tc.own)
		refused(t, "shown "+reason, err, tc.says)
		if err == nil && (len(got.Keys) != tc.trusts || len(chain) != max(len(tc.kept), len(tc.shown)) || got.Counter != uint64(len(chain))) {
			t.Errorf("shown %s: %d keys after %d statements, want %d", reason, len(got.Keys), len(chain), tc.trusts)
		}
	}
}

// TestSignedActions checks that an action is valid only for one node, only until its end, and only
// for the operator who signed it.
func TestSignedActions(t *testing.T) {
	code, ada, eve := codeKey(t), codeKey(t), codeKey(t)
	trust, err := identity.NewTrust(theFleet, pemOf(code), nil)
	if err != nil {
		t.Fatal(err)
	}
	body := tutti.TrustedOperators{Fleet: theFleet, Counter: 1, Operators: []tutti.OperatorKey{{Operator: "ada", Key: pemOf(ada)}, {Operator: "eve", Key: pemOf(eve)}}}
	list, err := trust.Operators(state(t, tutti.StatementOperators, body, code))
	if err != nil {
		t.Fatal(err)
	}
	for reason, tc := range map[string]struct {
		change func(*tutti.TrustedOperators)
		by     ed25519.PrivateKey
		says   string
	}{
		"by an operator":   {func(*tutti.TrustedOperators) {}, ada, "not signed"},
		"of another fleet": {func(l *tutti.TrustedOperators) { l.Fleet = tutti.DigestOf(nil) }, code, "for the fleet"},
		"somebody twice":   {func(l *tutti.TrustedOperators) { l.Operators[1].Operator = "ada" }, code, "twice"},
		"without a key":    {func(l *tutti.TrustedOperators) { l.Operators[1].Key = "" }, code, "eve"},
		"nobody":           {func(l *tutti.TrustedOperators) { l.Operators = nil }, code, ""},
	} {
		other := body
		other.Operators = slices.Clone(body.Operators)
		tc.change(&other)
		_, err := trust.Operators(state(t, tutti.StatementOperators, other, tc.by))
		refused(t, "a list "+reason, err, tc.says)
	}
	now := time.Now()
	for reason, tc := range map[string]struct {
		change func(*tutti.SignedAction)
		by     ed25519.PrivateKey
		says   string
	}{
		"as it was signed":     {func(*tutti.SignedAction) {}, ada, ""},
		"by another operator":  {func(*tutti.SignedAction) {}, eve, "not signed by an operator"},
		"by the code key":      {func(*tutti.SignedAction) {}, code, "not signed by an operator"},
		"of another fleet":     {func(a *tutti.SignedAction) { a.Fleet = tutti.DigestOf(nil) }, ada, "for the fleet"},
		"for other nodes":      {func(a *tutti.SignedAction) { a.Nodes = []tutti.NodeName{"db"} }, ada, "for other nodes"},
		"that has ended":       {func(a *tutti.SignedAction) { a.Until = now.Add(-time.Second) }, ada, "mend the clocks"},
		"of a wild clock":      {func(a *tutti.SignedAction) { a.Until = now.Add(2 * time.Hour) }, ada, "mend the clocks"},
		"that changes nothing": {func(a *tutti.SignedAction) { a.Action = tutti.RemoteStatus }, ada, "changes nothing"},
		"without a nonce":      {func(a *tutti.SignedAction) { a.Nonce = "" }, ada, "nonce"},
		"for nobody":           {func(a *tutti.SignedAction) { a.Nodes = nil }, ada, "0 nodes"},
		"of two lines":         {func(a *tutti.SignedAction) { a.Message = "a\nb" }, ada, "one line"},
	} {
		said := tutti.SignedAction{
			Fleet: theFleet, Operator: "ada", Action: tutti.RemoteDisable, Nodes: []tutti.NodeName{"web"}, Until: now.Add(time.Minute), Nonce: "n",
		}
		tc.change(&said)
		got, err := identity.Action(list, state(t, tutti.StatementAction, said, tc.by))
		if err == nil {
			err = got.For("web", now)
		}
		refused(t, "an action "+reason, err, tc.says)
	}
}
