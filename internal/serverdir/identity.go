package serverdir

import (
	"crypto/ed25519"
	"net"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
)

// Identity adapts package identity to the interfaces of package server.
type Identity struct {
	Authority *identity.Authority
	Bus       *embed.Server
	Config    Config
	OnSettle  func() // see server.Keys

	joinCA joinCA
}

var (
	_ server.Identity = (*Identity)(nil)
	_ server.Keys     = (*Identity)(nil)
)

func (s *Identity) address(listen string) string {
	_, port, _ := net.SplitHostPort(listen) // cannot fail, because the server was already listening on this address
	return net.JoinHostPort(s.Config.Host, port)
}

// NewToken implements server.Identity.
func (s *Identity) NewToken(in api.CreateToken) (string, tutti.TokenID, tutti.Digest, error) {
	return identity.NewToken(identity.TokenParams{
		Address: s.address(s.Config.Listen), Bus: s.address(s.Config.Bus), Pin: s.Authority.Pin(),
		Name: in.Name, Groups: in.Groups, TTL: in.TTL,
	})
}

// VerifyEnrol implements server.Identity.
func (s *Identity) VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error) {
	req := identity.EnrolRequest(in)
	return tutti.DigestOf(in.Secret), req.Verify()
}

// Enrol implements server.Identity.
func (s *Identity) Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error) {
	jwt, err := s.Authority.NodeJWT(key, node)
	if err != nil {
		return api.Enrolled{}, err
	}
	sets, err := s.Authority.KeySets()
	return api.Enrolled{
		Node: node, JWT: jwt, CA: string(s.Authority.CA()), Bus: s.address(s.Config.Bus),
		CodeKey: identity.EncodeCodePublicKey(s.Authority.CodePublicKey()), Time: time.Now().UTC(), Was: sets.Was, Fleet: s.Authority.Fleet(),
	}, err
}

// Revoke implements server.Identity.
func (s *Identity) Revoke(keys ...tutti.NodeKey) error {
	for _, key := range keys {
		account, err := s.Authority.Revoke(key)
		if err != nil {
			return err
		}
		if err := s.Bus.UpdateAccount(account); err != nil {
			return err
		}
	}
	return nil
}

// IssueOperator implements server.Identity.
func (s *Identity) IssueOperator(in api.IssueOperator) (api.IssuedOperator, error) {
	sign := s.Authority.SignOperator
	if in.Follows {
		sign = s.Authority.SignFollower
	}
	out, err := sign(in.Operator, in.Request)
	out.Server = "https://" + s.address(s.Config.Listen)
	return out, err
}

// KeySets implements server.Keys.
func (s *Identity) KeySets() (tutti.KeySets, error) { return s.Authority.KeySets() }

// Rotate implements server.Keys. The running bus gets new keys at once, so that nodes with these keys can connect. An
// old key set stays in the bus until the bus restarts.
func (s *Identity) Rotate(phase tutti.RotationPhase) error {
	switch phase {
	case tutti.RotationFinished:
		return s.Authority.FinishRotation()
	case tutti.RotationAbandoned:
		if err := s.Authority.AbandonRotation(); err != nil {
			return err
		}
	case tutti.RotationBegun:
		if err := s.Authority.BeginRotation(); err != nil {
			return err
		}
		fallthrough
	default:
		if err := s.Authority.EnterRotation(phase); err != nil {
			return err
		}
	}
	return s.Bus.UpdateAccount(s.Authority.NodesAccount())
}

// Settle implements server.Keys.
func (s *Identity) Settle() { s.OnSettle() }

// Fleet implements server.Signers.
func (s *Identity) Fleet() tutti.Digest { return s.Authority.Fleet() }

// The method `trust` returns the code keys that are trusted after these statements.
func (s *Identity) trust(said []tutti.Statement) (identity.Trust, error) {
	t := identity.Trust{Fleet: s.Authority.Fleet(), Keys: []ed25519.PublicKey{s.Authority.CodePublicKey()}}
	for _, st := range said {
		var err error
		if t, err = t.Follow(st); err != nil {
			return t, tutti.Wrap(tutti.CodeDamaged, err, "the statements about code keys in the log")
		}
	}
	return t, nil
}

// Code implements server.Signers.
func (s *Identity) Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.Signed{}, err
	}
	return t.Code(in)
}

// Compile implements server.Signers.
func (s *Identity) Compile(trust []tutti.Statement, in tutti.SignedCode) (tutti.SignedCompile, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.SignedCompile{}, err
	}
	return t.Compile(in)
}

// Said implements server.Signers.
func (s *Identity) Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.Signed{}, err
	}
	return t.Said(in)
}

// Next implements server.Signers.
func (s *Identity) Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error) {
	before, err := s.trust(trust)
	if err != nil {
		return tutti.KeysTrusted{}, err
	}
	after, err := before.Follow(next)
	if err != nil {
		return tutti.KeysTrusted{}, err
	}
	if after.Counter == before.Counter {
		return tutti.KeysTrusted{}, tutti.Errorf(tutti.CodeConflict, "which code keys to trust: a different statement %d is there already", before.Counter)
	}
	out := tutti.KeysTrusted{Counter: after.Counter, Statement: next}
	for _, key := range after.Keys {
		out.Keys = append(out.Keys, identity.KeyID(key))
	}
	return out, nil
}

// Operators implements server.Signers.
func (s *Identity) Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.OperatorsTrusted{}, err
	}
	list, err := t.Operators(in)
	out := tutti.OperatorsTrusted{Counter: list.Counter, Statement: in}
	for _, o := range list.Operators {
		out.Operators = append(out.Operators, o.Operator)
	}
	return out, err
}

// Plans implements server.Signers.
func (s *Identity) Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.SignedPlans{}, err
	}
	return t.Plans(in)
}
