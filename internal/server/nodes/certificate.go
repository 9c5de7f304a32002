package nodes

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
)

// These constants limit how many machines can wait for approval. Only a machine with a certificate of the site's CA can wait.
const (
	maxAsking     = 100_000 // names
	maxAskingName = 8       // certificates of one name
)

// EnrolByCertificate implements tutti.Nodes. The proof is the certificate that the site's Puppet CA has signed, and the
// signatures of both keys (ADR 0031).
func (s *Nodes) EnrolByCertificate(ctx context.Context, in api.JoinRequest) (api.JoinAnswer, error) {
	if err := s.Opts.Space(); err != nil {
		return api.JoinAnswer{}, err
	}
	if err := s.Opts.Identity.ProveJoin(in); err != nil {
		return api.JoinAnswer{}, err // as with tokens, a key that nobody has proved is in no audit entry
	}
	name, certificate, err := s.certified(ctx, in)
	if err != nil {
		s.Denied(ctx, "key:"+string(in.Key), strings.TrimSpace("join with the Puppet certificate "+certificate.Serial+" of "+string(name)), err)
		return api.JoinAnswer{}, err
	}
	var pending string
	out, err := s.enrol(ctx, name, in.Key, func(tx *tx) (*tutti.NodeEnrolled, error) {
		var groups []tutti.GroupName
		if groups, pending, err = tx.admitCertificate(in, name, certificate); err != nil {
			return nil, tx.Deny("certificate:"+certificate.Serial, "join as "+string(name), err)
		}
		if pending == "" {
			return &tutti.NodeEnrolled{Node: name, Key: in.Key, BoxKey: in.BoxKey, Groups: groups, Certificate: &certificate}, nil
		}
		asking := tx.Registry.Asking[name]
		switch known := asking[certificate.Key]; {
		// The operator decides about the newest certificate. Only a newer one is a new event, so that a machine with two
		// certificates cannot fill the log.
		case known != nil && !certificate.Ends.After(known.Certificate.Ends):
		case known == nil && (len(tx.Registry.Asking) >= maxAsking || len(asking) >= maxAskingName):
			return nil, tutti.Errorf(tutti.CodeUnavailable, "too many machines wait for approval already, in all or under the name %s; see: tutti node pending", name)
		default:
			tx.Emit(tutti.ActorNode(name), &tutti.NodePending{Node: name, Certificate: certificate, Why: pending})
		}
		return nil, nil
	})
	switch {
	case err != nil:
		return api.JoinAnswer{}, err
	case pending != "":
		return api.JoinAnswer{Pending: pending}, nil
	}
	return api.JoinAnswer{Enrolled: &out}, nil
}

// The method `certified` checks the request with the CA that the server knows now.
func (s *Nodes) certified(ctx context.Context, in api.JoinRequest) (name tutti.NodeName, certificate tutti.NodeCertificate, err error) {
	var ca tutti.JoinCASet
	var now time.Time
	err = s.Look(ctx, func(v explain.View) error {
		ca, now = v.Registry.JoinCA, v.Now
		return nil
	})
	if err != nil {
		return "", certificate, err
	}
	if ca.CA == "" {
		return "", certificate, tutti.Errorf(tutti.CodeRefused, "the server knows no Puppet CA; an operator tells it with: tutti server trust-ca FILE")
	}
	return s.Opts.Identity.VerifyJoin(in, ca, now)
}

// admitCertificate returns the groups in which a machine may join. If an operator must decide, `pending` says why.
func (tx *tx) admitCertificate(in api.JoinRequest, name tutti.NodeName, certificate tutti.NodeCertificate) (groups []tutti.GroupName, pending string, err error) {
	if err := tx.NoGroup(string(name)); err != nil {
		return nil, "", err
	}
	n := tx.Registry.Nodes[name]
	if other := tx.Registry.ByKey(in.Key); other != nil && other.Node != name {
		return nil, "", tutti.Errorf(tutti.CodeRefused, "this key already belongs to node %s", other.Node)
	}
	if n != nil {
		if err := tx.sameMachine(in, n, certificate); err != nil {
			return nil, "", err
		}
	}
	if a := tx.Registry.Asking[name][certificate.Key]; a != nil {
		switch {
		case a.Rejected:
			return nil, "", tutti.Errorf(tutti.CodeRefused, "an operator has rejected this machine; to let it join: tutti node approve %s", name)
		case a.Approved != nil:
			return a.Approved.Groups, "", nil
		}
	}
	rule, fits := tx.Fleet().JoinRuleFor(name, certificate.Extensions)
	switch {
	case n != nil && n.Certificate != nil && n.Certificate.Key == certificate.Key:
		// Somebody has admitted this certificate before. A rule that fits can have other groups now.
		if fits {
			return rule.Groups, "", nil
		}
		return n.Groups, "", nil
	case tx.Registry.Removed(name):
		return nil, "the node " + string(name) + " has left the fleet or was removed before", nil
	case fits:
		return rule.Groups, "", nil
	}
	return nil, "no rule of the fleet file (`join`) fits the certificate", nil
}

// sameMachine refuses a machine with another certificate than the node's, unless an operator allows the replacement.
func (tx *tx) sameMachine(in api.JoinRequest, n *fold.Node, certificate tutti.NodeCertificate) error {
	name := n.Node
	switch {
	case n.Replaceable:
		return nil
	case n.Tickets.Conflicted != "": // each of the two machines has the certificate, so a join must not decide which one is the node
		return conflicted(name)
	case n.Key == in.Key && n.Certificate == nil:
		return nil
	case n.Certificate == nil:
		return tutti.Errorf(tutti.CodeConflict, "a node %s exists, and joined with a token; if this machine replaces it, first run: tutti node replace %s", name, name)
	case n.Certificate.Key != certificate.Key:
		return tutti.Errorf(tutti.CodeConflict, "a node %s exists with another certificate (serial number %s); if this machine replaces it, first run: tutti node replace %s",
			name, n.Certificate.Serial, name)
	}
	return nil
}

// sameCertificate reports whether two enrolments of a node have the same content of a certificate. The serial number alone
// does not say so, because a CA that the site has made again begins to count again.
func sameCertificate(a, b *tutti.NodeCertificate) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Serial == b.Serial && a.Issuer == b.Issuer && a.Ends.Equal(b.Ends) && maps.Equal(a.Extensions, b.Extensions)
}
