package core

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// Signers checks what code keys have signed (ADR 0026). Which keys those are follows from the statements
// about them that are in the log, in order.
type Signers interface {
	// Fleet is the id of the fleet.
	Fleet() tutti.Digest
	// Code checks what was signed of a manifest. CodeRefused: no key that is trusted has, or for another fleet.
	// The zero Signed: only a release of before has signed.
	Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error)
	// Said is Code of a statement whose manifest is known.
	Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error)
	// Next checks the next statement about code keys.
	Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error)
	// Plans checks what was signed of a fleet file.
	Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error)
	// Operators checks a list of operators who sign actions.
	Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error)
}

// RingClaims lets nodes claim now, and hear what is new with that: they do it by themselves, later.
func (s *Core) RingClaims(keys []tutti.NodeKey) {
	for _, key := range keys {
		if err := s.Opts.Bus.Ring(key, wire.RingClaim, nil); err != nil {
			s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err)
		}
	}
}
