package serverdir

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
)

// joinCA keeps the CA that was read last, because a CRL can have a million entries.
type joinCA struct {
	mu   sync.Mutex
	from tutti.JoinCASet
	read *identity.PuppetCA
}

func (c *joinCA) of(ca tutti.JoinCASet) (*identity.PuppetCA, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read != nil && c.from == ca {
		return c.read, nil
	}
	read, err := identity.ReadPuppetCA([]byte(ca.CA), []byte(ca.CRL))
	if err != nil {
		return nil, err
	}
	c.from, c.read = ca, read
	return read, nil
}

// ProveJoin implements server.Identity.
func (s *Identity) ProveJoin(in api.JoinRequest) error {
	req := identity.JoinRequest{Certificate: in.Certificate, Key: in.Key, BoxKey: in.BoxKey, Signature: in.Signature, Proof: in.Proof}
	return req.Verify(in.Binding)
}

// VerifyJoin implements server.Identity.
func (s *Identity) VerifyJoin(in api.JoinRequest, ca tutti.JoinCASet, now time.Time) (tutti.NodeName, tutti.NodeCertificate, error) {
	read, err := s.joinCA.of(ca)
	if err != nil {
		return "", tutti.NodeCertificate{}, err
	}
	got, err := read.Verify([]byte(in.Certificate), now)
	return got.Name, tutti.NodeCertificate{Key: got.Key, Serial: got.Serial, Issuer: got.Issuer, Ends: got.Ends, Extensions: got.Extensions}, err
}

// ReadJoinCA implements server.Identity.
func (s *Identity) ReadJoinCA(ca tutti.JoinCASet) (api.JoinCAView, func(tutti.NodeCertificate) bool, error) {
	view := api.JoinCAView{Server: s.address(s.Config.Listen), Pin: s.Authority.Pin()}
	if ca.CA == "" {
		return view, func(tutti.NodeCertificate) bool { return false }, nil
	}
	read, err := s.joinCA.of(ca)
	if err != nil {
		return view, nil, err
	}
	view.Subjects, view.Ends, view.CRLEnds, view.HasCRL = read.Subjects(), read.Ends(), read.CRLEnds(), ca.CRL != ""
	return view, func(c tutti.NodeCertificate) bool { return read.Revokes(c.Issuer, c.Serial) }, nil
}
