package main

import "github.com/tutti-project/tutti"

// The type `believing` is a fake of an agent's signers. It accepts all code as signed.
type believing struct{}

func (believing) Code(tutti.SignedCode) (tutti.Signed, error) { return tutti.Signed{}, nil }
func (believing) Follow([]tutti.Statement) error              { return nil }
func (believing) Trusts() uint64                              { return 0 }

// Compile implements agent.Signers.
func (believing) Compile(tutti.SignedCode) (tutti.SignedCompile, error) {
	return tutti.SignedCompile{}, nil
}
