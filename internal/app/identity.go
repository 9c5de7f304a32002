package app

import (
	"crypto/ed25519"
	"net"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
)

// serverIdentity adapts package identity to the interfaces of package server.
type serverIdentity struct {
	authority *identity.Authority
	bus       *embed.Server
	config    serverConfig
	settle    func() // see server.Keys
}

var (
	_ server.Identity = (*serverIdentity)(nil)
	_ server.Keys     = (*serverIdentity)(nil)
)

func (s *serverIdentity) address(listen string) string {
	_, port, _ := net.SplitHostPort(listen) // the server has listened on it
	return net.JoinHostPort(s.config.Host, port)
}

func (s *serverIdentity) NewToken(in api.CreateToken) (string, tutti.TokenID, tutti.Digest, error) {
	return identity.NewToken(identity.TokenParams{
		Address: s.address(s.config.Listen), Bus: s.address(s.config.Bus), Pin: s.authority.Pin(),
		Name: in.Name, Groups: in.Groups, TTL: in.TTL,
	})
}

func (s *serverIdentity) VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error) {
	req := identity.EnrolRequest(in)
	return tutti.DigestOf(in.Secret), req.Verify()
}

func (s *serverIdentity) Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error) {
	jwt, err := s.authority.NodeJWT(key, node)
	if err != nil {
		return api.Enrolled{}, err
	}
	sets, err := s.authority.KeySets()
	return api.Enrolled{
		Node: node, JWT: jwt, CA: string(s.authority.CA()), Bus: s.address(s.config.Bus),
		CodeKey: identity.EncodeCodePublicKey(s.authority.CodePublicKey()), Time: now(), Was: sets.Was, Fleet: s.authority.Fleet(),
	}, err
}

func (s *serverIdentity) Revoke(keys ...tutti.NodeKey) error {
	for _, key := range keys {
		account, err := s.authority.Revoke(key)
		if err != nil {
			return err
		}
		if err := s.bus.UpdateAccount(account); err != nil {
			return err
		}
	}
	return nil
}

func (s *serverIdentity) IssueOperator(in api.IssueOperator) (api.IssuedOperator, error) {
	sign := s.authority.SignOperator
	if in.Follows {
		sign = s.authority.SignFollower
	}
	out, err := sign(in.Operator, in.Request)
	out.Server = "https://" + s.address(s.config.Listen)
	return out, err
}

// KeySets implements server.Keys.
func (s *serverIdentity) KeySets() (tutti.KeySets, error) { return s.authority.KeySets() }

// Rotate implements server.Keys. The running bus learns at once which keys let nodes in. It forgets a key set only when
// it is started again.
func (s *serverIdentity) Rotate(phase tutti.RotationPhase) error {
	switch phase {
	case tutti.RotationFinished:
		return s.authority.FinishRotation()
	case tutti.RotationAbandoned:
		if err := s.authority.AbandonRotation(); err != nil {
			return err
		}
	case tutti.RotationBegun:
		if err := s.authority.BeginRotation(); err != nil {
			return err
		}
		fallthrough
	default:
		if err := s.authority.EnterRotation(phase); err != nil {
			return err
		}
	}
	return s.bus.UpdateAccount(s.authority.NodesAccount())
}

// Settle implements server.Keys.
func (s *serverIdentity) Settle() { s.settle() }

// Fleet implements server.Signers.
func (s *serverIdentity) Fleet() tutti.Digest { return s.authority.Fleet() }

// trust returns which code keys sign after some statements.
func (s *serverIdentity) trust(said []tutti.Statement) (identity.Trust, error) {
	t := identity.Trust{Fleet: s.authority.Fleet(), Keys: []ed25519.PublicKey{s.authority.CodePublicKey()}}
	for _, st := range said {
		var err error
		if t, err = t.Follow(st); err != nil {
			return t, tutti.Wrap(tutti.CodeDamaged, err, "what the log says of code keys")
		}
	}
	return t, nil
}

// Code implements server.Signers.
func (s *serverIdentity) Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.Signed{}, err
	}
	return t.Code(in)
}

// Said implements server.Signers.
func (s *serverIdentity) Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.Signed{}, err
	}
	return t.Said(in)
}

// Next implements server.Signers.
func (s *serverIdentity) Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error) {
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
func (s *serverIdentity) Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error) {
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
func (s *serverIdentity) Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error) {
	t, err := s.trust(trust)
	if err != nil {
		return tutti.SignedPlans{}, err
	}
	return t.Plans(in)
}
