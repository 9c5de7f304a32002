package app

import (
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/identity"
)

// signers is which code keys a node trusts. The node's membership keeps that.
type signers struct {
	dir string
	mu  sync.Mutex
	now identity.Trust
}

var _ agent.Signers = (*signers)(nil)

// Code implements agent.Signers.
func (s *signers) Code(in tutti.SignedCode) (tutti.Signed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Code(in)
}

// Trusts implements agent.Signers.
func (s *signers) Trusts() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Counter
}

// Follow implements agent.Signers. The last statement is kept: it names all keys that sign.
func (s *signers) Follow(chain []tutti.Statement) error {
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
	return nil
}

// membershipMu is held while the membership of this process's node is read and written again: it is renewed, and it
// follows statements, at the same time.
var membershipMu sync.Mutex

// changeMembership changes what the disk has of a membership.
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

// keepFleet notes the id of the fleet in a membership that an earlier release has written: a later CA does not
// change it.
func keepFleet(dir string, m *identity.EnrolResponse) error {
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
