package machine

import (
	"crypto/ed25519"
	"slices"
	"strings"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/identity"
)

// Signers are the code keys that a node trusts. The keys are stored in the node's
// membership.
type Signers struct {
	dir    string
	mu     sync.Mutex
	now    identity.Trust
	list   *tutti.Statement        // the list of operators who sign actions, as the server sent it
	acting *tutti.TrustedOperators // the content of `list`; it is empty if no trusted key has signed the list
}

var (
	_ agent.Signers = (*Signers)(nil)
	_ agent.Acting  = (*Signers)(nil)
)

// NewSigners returns the keys of a membership on disk.
func NewSigners(dir string, m identity.EnrolResponse) (*Signers, error) {
	s := &Signers{dir: dir, list: m.Operators}
	var err error
	s.now, err = m.Trusts()
	s.judge()
	return s, err
}

// The method `judge` determines who may sign actions. The list of operators is valid only if it is signed by a key
// that the node trusts now. If there is a list and it is invalid, the node carries out no actions until it has a
// valid list.
func (s *Signers) judge() {
	if s.list == nil {
		return
	}
	list, err := s.now.Operators(*s.list)
	if err != nil {
		list = tutti.TrustedOperators{Fleet: s.now.Fleet}
	}
	s.acting = &list
}

// Listed implements agent.Acting.
func (s *Signers) Listed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acting == nil {
		return 0
	}
	return s.acting.Counter
}

// Take implements agent.Acting.
func (s *Signers) Take(list tutti.Statement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.now.Operators(list)
	if err != nil || s.acting != nil && next.Counter <= s.acting.Counter {
		return err
	}
	if err := changeMembership(s.dir, func(m *identity.EnrolResponse) { m.Operators = &list }); err != nil {
		return err
	}
	s.list, s.acting = &list, &next
	return nil
}

// Action implements agent.Acting.
func (s *Signers) Action(in *tutti.Statement) (*tutti.SignedAction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.acting == nil:
		return nil, nil
	case in == nil:
		return nil, tutti.Errorf(tutti.CodeRefused, "this node does only actions that an operator has signed, and no operator has signed this action")
	}
	said, err := identity.Action(*s.acting, *in)
	return &said, err
}

// Code implements agent.Signers.
func (s *Signers) Code(in tutti.SignedCode) (tutti.Signed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Code(in)
}

// Compile implements agent.Signers.
func (s *Signers) Compile(in tutti.SignedCode) (tutti.SignedCompile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Compile(in)
}

// Trusts implements agent.Signers.
func (s *Signers) Trusts() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Counter
}

// Follow implements agent.Signers. Follow stores only the last statement of the chain,
// because this statement names all keys that sign now.
func (s *Signers) Follow(chain []tutti.Statement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now
	var last *tutti.Statement
	for _, st := range chain {
		before := next.Counter
		var err error
		if next, err = next.Follow(st); err != nil {
			return err
		}
		if next.Counter > before {
			last = &st
		}
	}
	if last == nil {
		return nil
	}
	if err := changeMembership(s.dir, func(m *identity.EnrolResponse) { m.Trust = last }); err != nil {
		return err
	}
	s.now = next
	s.judge()
	return nil
}

// membershipMu is locked while this process reads and writes its node's membership. The lock is needed
// because renewals and statements may change the membership at the same time.
var membershipMu sync.Mutex

// changeMembership changes the membership on disk.
func changeMembership(dir string, change func(*identity.EnrolResponse)) error {
	membershipMu.Lock()
	defer membershipMu.Unlock()
	m, err := identity.LoadMembership(dir)
	if err != nil {
		return err
	}
	change(&m)
	return m.Write(dir)
}

// KeepFleet adds the id of the fleet to a membership that an earlier release has written. The id stays the
// same when the fleet gets a new CA.
func KeepFleet(dir string, m *identity.EnrolResponse) error {
	if m.Fleet != "" {
		return nil
	}
	fleet, err := identity.FleetOf(*m)
	if err != nil {
		return err
	}
	m.Fleet = fleet
	return changeMembership(dir, func(on *identity.EnrolResponse) { on.Fleet = fleet })
}

// checkOperators returns an error if the list of operators is not signed by a code key that the new node trusts.
func checkOperators(m identity.EnrolResponse) error {
	if m.Operators == nil {
		return nil
	}
	trust, err := m.Trusts()
	if err == nil {
		_, err = trust.Operators(*m.Operators)
	}
	return err
}

// KeepPins returns the membership of a node that joins again. The node keeps the code keys and the list of operators
// that it already trusts. A server alone cannot replace these keys and this list. With its first claim, the agent
// gets the statements that lead from the old keys to the new keys. The argument `codeKeys` contains all keys that a
// person has named on the node, and is empty if nobody has named keys.
func KeepPins(had, told identity.EnrolResponse, codeKeys []string) (identity.EnrolResponse, error) {
	theirs, err := told.Trusts()
	if err != nil {
		return told, err
	}
	if len(codeKeys) > 0 {
		// A server could show an old statement, which names a rotated key in addition to the key
		// that the person has named.
		if slices.ContainsFunc(theirs.Keys, func(key ed25519.PublicKey) bool { return !slices.Contains(codeKeys, string(identity.KeyID(key))) }) {
			return told, tutti.Errorf(tutti.CodeRefused, "the server says that code is signed by %s, but --trust-code-key names only %s; while the key is rotated, name both keys", strings.Join(keyIDs(theirs), " and "), strings.Join(codeKeys, " and "))
		}
	}
	if had.CodeKey == "" { // a newcomer
		return told, nil
	}
	own, err := had.Trusts()
	if err != nil {
		return told, err
	}
	if len(codeKeys) > 0 {
		if own.Fleet != theirs.Fleet && slices.ContainsFunc(theirs.Keys, own.Has) {
			return told, tutti.Errorf(tutti.CodeRefused, "the server belongs to the fleet %.19s, but claims to have the code key of this node's fleet, %.19s; if both fleets really have the same code key, first run on this node: tutti leave", theirs.Fleet, own.Fleet)
		}
		keep := told
		if had.Operators != nil {
			if _, err := theirs.Operators(*had.Operators); err == nil {
				keep.Operators = laterOperators(theirs, had, told)
			}
		}
		return keep, nil
	}
	keep, next := told, own
	keep.CodeKey, keep.Trust = had.CodeKey, had.Trust
	known := func(key ed25519.PublicKey) bool {
		return own.Has(key) || identity.EncodeCodePublicKey(key) == had.CodeKey
	}
	switch {
	case own.Fleet != theirs.Fleet:
		err = tutti.Errorf(tutti.CodeRefused, "the server belongs to the fleet %.19s, but this node belongs to the fleet %.19s", theirs.Fleet, own.Fleet)
	case theirs.Counter == own.Counter+1:
		if next, err = own.Follow(*told.Trust); err == nil {
			keep.Trust = told.Trust
		}
	case theirs.Counter <= own.Counter && !slices.ContainsFunc(theirs.Keys, known): // no later statement can lead to the server's keys
		err = tutti.Errorf(tutti.CodeRefused, "no key that this node has pinned has signed the server's key")
	}
	if err != nil {
		return told, tutti.Wrap(tutti.CodeRefused, err, "the server says that code is signed by %s, and this node has pinned %s; nothing was changed; if the operators confirm the server's key, join with --trust-code-key %s",
			strings.Join(keyIDs(theirs), " and "), strings.Join(keyIDs(own), " and "), strings.Join(keyIDs(theirs), " --trust-code-key "))
	}
	keep.Operators = laterOperators(next, had, told)
	return keep, nil
}

// laterOperators returns the list of operators that a node has after a join. The result is the server's list if a
// trusted key has signed it and its counter is higher than the counter of the node's own list.
func laterOperators(trust identity.Trust, had, told identity.EnrolResponse) *tutti.Statement {
	if told.Operators == nil {
		return had.Operators
	}
	list, err := trust.Operators(*told.Operators)
	var now tutti.TrustedOperators
	if had.Operators != nil {
		now, _ = trust.Operators(*had.Operators) // a list counts only if a current key has signed it
	}
	if err == nil && list.Counter > now.Counter {
		return told.Operators
	}
	return had.Operators
}

// keyIDs returns the ids of the trusted keys.
func keyIDs(t identity.Trust) []string {
	var out []string
	for _, key := range t.Keys {
		out = append(out, string(identity.KeyID(key)))
	}
	return out
}
