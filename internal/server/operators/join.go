package operators

import (
	"cmp"
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
)

// SetJoinCA implements tutti.Tokens.
func (s *Keys) SetJoinCA(ctx context.Context, in api.SetJoinCA) (api.JoinCAView, error) {
	switch {
	case in.Remove && (in.CA != "" || in.CRL != "" || in.NoCRL):
		return api.JoinCAView{}, tutti.Errorf(tutti.CodeInvalid, "remove the CA, or give one: not both")
	case !in.Remove && in.CA == "":
		return api.JoinCAView{}, tutti.Errorf(tutti.CodeInvalid, "the CA's certificate is missing")
	case !in.Remove && (in.CRL == "") != in.NoCRL:
		return api.JoinCAView{}, tutti.Errorf(tutti.CodeInvalid, "a CRL is needed, or the word that there is none: --crl FILE or --no-crl")
	}
	if err := s.Opts.Space(); err != nil {
		return api.JoinCAView{}, err
	}
	err := s.lasting(ctx, "set the Puppet CA by which machines join", func(tx *tx) error {
		if !in.Remove {
			if _, _, err := s.Opts.Identity.ReadJoinCA(in.JoinCASet); err != nil {
				return err
			}
		}
		if tx.Registry.JoinCA != in.JoinCASet {
			tx.Emit(tutti.Actor(ctx), &tutti.JoinCASet{CA: in.CA, CRL: in.CRL})
		}
		return nil
	})
	if err != nil {
		return api.JoinCAView{}, err
	}
	return s.ShowJoinCA(ctx)
}

// ShowJoinCA implements tutti.Tokens.
func (s *Keys) ShowJoinCA(ctx context.Context) (api.JoinCAView, error) {
	var out api.JoinCAView
	err := s.Look(ctx, func(v explain.View) error {
		var revokes func(tutti.NodeCertificate) bool
		var err error
		if out, revokes, err = s.Opts.Identity.ReadJoinCA(v.Registry.JoinCA); err != nil {
			return err
		}
		for _, n := range v.Registry.Nodes {
			if n.Certificate != nil && revokes(*n.Certificate) {
				out.Revoked = append(out.Revoked, n.Node)
			}
		}
		slices.Sort(out.Revoked)
		return nil
	})
	return out, err
}

// ListPending implements tutti.Nodes. The machine that has asked first comes first.
func (s *Operators) ListPending(ctx context.Context) ([]api.PendingView, error) {
	var out []api.PendingView
	err := s.Look(ctx, func(v explain.View) error {
		for _, a := range v.Registry.Asking {
			out = append(out, api.PendingView{NodePending: a.NodePending, At: a.At, Approved: a.Approved != nil, Rejected: a.Rejected})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b api.PendingView) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node))
	})
	return out, err
}

// ApproveNode implements tutti.Nodes.
func (s *Operators) ApproveNode(ctx context.Context, in api.ApproveNode) error {
	return s.lasting(ctx, "approve node "+string(in.Node), func(tx *tx) error {
		a := tx.Registry.Asking[in.Node]
		if a == nil {
			return notAsking(in.Node)
		}
		for _, g := range in.Groups {
			if !slices.ContainsFunc(tx.Fleet().Groups, func(have tutti.Group) bool { return have.Name == g && len(have.Nodes) == 0 }) {
				return tutti.Errorf(tutti.CodeInvalid, "the fleet file has no group %q with `joined: true`", string(g))
			}
		}
		tx.Emit(tutti.Actor(ctx), &tutti.NodeApproved{Node: in.Node, Key: a.Certificate.Key, Groups: in.Groups})
		return nil
	})
}

// RejectNode implements tutti.Nodes.
func (s *Operators) RejectNode(ctx context.Context, name tutti.NodeName) error {
	return s.lasting(ctx, "reject node "+string(name), func(tx *tx) error {
		a := tx.Registry.Asking[name]
		if a == nil {
			return notAsking(name)
		}
		if !a.Rejected {
			tx.Emit(tutti.Actor(ctx), &tutti.NodeRejected{Node: name, Key: a.Certificate.Key})
		}
		return nil
	})
}

func notAsking(name tutti.NodeName) error {
	return tutti.Errorf(tutti.CodeNotFound, "no machine asks to join as %q; see: tutti node pending", string(name))
}
