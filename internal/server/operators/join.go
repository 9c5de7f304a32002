package operators

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
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
			view, _, err := s.Opts.Identity.ReadJoinCA(in.JoinCASet)
			switch {
			case err != nil:
				return err
			case tx.Now.After(view.Ends):
				return tutti.Errorf(tutti.CodeInvalid, "a certificate of the CA ended at %s; leave it out of the file", view.Ends.Format(time.RFC3339))
			case !view.CRLEnds.IsZero() && tx.Now.After(view.CRLEnds):
				return tutti.Errorf(tutti.CodeInvalid, "a CRL ended at %s, so that no machine could join; get the present CRL from the CA", view.CRLEnds.Format(time.RFC3339))
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
		for _, asking := range v.Registry.Asking {
			for _, a := range asking {
				view := api.PendingView{NodePending: a.NodePending, At: a.At, Approved: a.Approved != nil, Rejected: a.Rejected}
				if a.Approved != nil {
					view.Groups = a.Approved.Groups
				}
				out = append(out, view)
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b api.PendingView) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Certificate.Key, b.Certificate.Key))
	})
	return out, err
}

// ApproveNode implements tutti.Nodes.
func (s *Operators) ApproveNode(ctx context.Context, in api.ApproveNode) error {
	return s.lasting(ctx, "approve node "+string(in.Node), func(tx *tx) error {
		a, err := tx.asks(in.Node, in.Serial)
		if err == nil {
			err = tx.NoGroup(string(in.Node))
		}
		if err != nil {
			return err
		}
		for _, g := range in.Groups {
			if !slices.ContainsFunc(tx.Fleet().Groups, func(have tutti.Group) bool { return have.Name == g && have.Named() }) {
				return tutti.Errorf(tutti.CodeInvalid, "the fleet file has no group %q with `joined: true`", string(g))
			}
		}
		groups := slices.Compact(slices.Sorted(slices.Values(in.Groups)))
		tx.Emit(tutti.Actor(ctx), &tutti.NodeApproved{Node: in.Node, Key: a.Certificate.Key, Groups: groups})
		return nil
	})
}

// RejectNode implements tutti.Nodes.
func (s *Operators) RejectNode(ctx context.Context, in api.RejectNode) error {
	return s.lasting(ctx, "reject node "+string(in.Node), func(tx *tx) error {
		a, err := tx.asks(in.Node, in.Serial)
		if err != nil {
			return err
		}
		if !a.Rejected {
			tx.Emit(tutti.Actor(ctx), &tutti.NodeRejected{Node: in.Node, Key: a.Certificate.Key})
		}
		return nil
	})
}

// The method `asks` returns the machine that asks under a name. If several machines ask, the serial number decides, so that
// an operator never decides about a machine that the operator has not seen.
func (tx *tx) asks(name tutti.NodeName, serial string) (*fold.Asking, error) {
	var found []*fold.Asking
	var serials []string
	for _, a := range tx.Registry.Asking[name] {
		if serial == "" || strings.EqualFold(a.Certificate.Serial, serial) {
			found = append(found, a)
		}
		serials = append(serials, a.Certificate.Serial)
	}
	slices.Sort(serials)
	switch {
	case len(serials) == 0:
		return nil, tutti.Errorf(tutti.CodeNotFound, "no machine asks to join as %q; see: tutti node pending", string(name))
	case len(found) == 0:
		return nil, tutti.Errorf(tutti.CodeNotFound, "no machine with the serial number %q asks to join as %s (there are: %s)", serial, name, strings.Join(serials, ", "))
	case len(found) > 1:
		return nil, tutti.Errorf(tutti.CodeConflict, "%d machines with different certificates ask to join as %s; choose one with --serial: %s", len(found), name, strings.Join(serials, ", "))
	}
	return found[0], nil
}
