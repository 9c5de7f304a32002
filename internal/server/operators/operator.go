package operators

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
)

// IssueOperator implements tutti.Operators.
func (s *Keys) IssueOperator(ctx context.Context, in api.IssueOperator) (api.IssuedOperator, error) {
	if in.Operator == core.LocalOperator {
		return api.IssuedOperator{}, tutti.Errorf(tutti.CodeInvalid, "operator name %q is reserved for operators at the server's own socket", in.Operator)
	}
	out, err := s.Opts.Identity.IssueOperator(in)
	if err != nil {
		return out, err
	}
	return out, s.lasting(ctx, "let operator "+in.Operator+" in", func(tx *tx) error {
		tx.Emit(tutti.Actor(ctx), &tutti.OperatorIssued{Operator: in.Operator, Serial: out.Serial, Expires: out.Expires, CodeKey: in.CodeKey, CA: out.Signer})
		return nil
	})
}

// RenewOperator implements tutti.Operators. The old certificate stays valid until its end,
// because the operator may not receive the new one.
func (s *Keys) RenewOperator(ctx context.Context, request []byte) (api.IssuedOperator, error) {
	return s.renewOperator(ctx, api.IssueOperator{Request: request})
}

// FollowRotation implements tutti.Rotations.
func (s *Keys) FollowRotation(ctx context.Context, request []byte) (api.IssuedOperator, error) {
	return s.renewOperator(ctx, api.IssueOperator{Request: request, Follows: true})
}

// The following constants limit how often an operator can renew certificates, because the log keeps each
// certificate. Each copy of an operator's directory renews its certificate once a year, and once in a rotation of
// the CA.
const (
	maxRenewals = 50
	renewalsIn  = 24 * time.Hour
)

func (s *Keys) renewOperator(ctx context.Context, in api.IssueOperator) (api.IssuedOperator, error) {
	name, ok := strings.CutPrefix(tutti.Actor(ctx), core.ActorOperator)
	if !ok || name == core.LocalOperator {
		return api.IssuedOperator{}, tutti.Errorf(tutti.CodeInvalid, "only an operator who connects with a certificate can renew it")
	}
	if err := s.Opts.Space(); err != nil {
		return api.IssuedOperator{}, err
	}
	in.Operator = name
	out, err := s.Opts.Identity.IssueOperator(in)
	if err != nil {
		return out, err
	}
	return out, s.lasting(ctx, "renew a certificate", func(tx *tx) error {
		if n := tx.Registry.Operators[name].IssuedSince(tx.Now.Add(-renewalsIn)); n >= maxRenewals {
			return tutti.Errorf(tutti.CodeUnavailable, "operator %s has got %d certificates within a day, and can renew again only tomorrow; the present certificate stays good; "+
				"to get a new one now, ask another operator, or run as root on the server: tutti operator create %s", name, n, name)
		}
		tx.Emit(tutti.Actor(ctx), &tutti.OperatorIssued{Operator: name, Serial: out.Serial, Expires: out.Expires, CA: out.Signer})
		return nil
	})
}

// isKnown refuses a lasting change if the caller's certificate has ended or is not in the log, because a thief of the
// CA may have made such a certificate. Lasting changes are changes of the fleet's members and access, of code, data
// and pauses, and of certificates and the CA.
func (tx *tx) isKnown(ctx context.Context, what string) error {
	v := core.VisitOf(ctx)
	if v == nil || tx.Registry.Operators[v.Name].Knows(v.Serial, tx.Now) {
		return nil
	}
	return tx.Deny(core.ActorOperator+v.Name, what, v.IsStrange("and so it is not valid for this call: "))
}

// RevokeOperator implements tutti.Operators.
func (s *Keys) RevokeOperator(ctx context.Context, in api.RevokeOperator) (out api.RevokedOperator, err error) {
	in.Reason = plain.Line(in.Reason)
	err = s.lasting(ctx, "revoke operator "+in.Operator, func(tx *tx) error {
		if tx.Registry.Operators[in.Operator] == nil {
			return tutti.Errorf(tutti.CodeNotFound, "there is no operator %q; see: tutti operator list", in.Operator)
		}
		if !in.Last && !tx.othersRemain(tutti.Actor(ctx), in.Operator) {
			return tutti.Errorf(tutti.CodeConflict, "after this nobody is known to have a certificate; then only root on the server can connect, through the local socket; to do it anyway, add --last")
		}
		if !in.Last && core.VisitOf(ctx) != nil && len(tx.Fleet().Access) > 0 && !tx.Admins(ctx, tx.Fleet(), in.Operator) {
			return tutti.Errorf(tutti.CodeConflict, "after this no admin has a valid certificate; then only root on the server can change the fleet file, through the local socket; to do it anyway, add --last")
		}
		tx.Emit(tutti.Actor(ctx), &tutti.OperatorRevoked{Operator: in.Operator, Reason: in.Reason})
		out = tx.cancelJobs(tutti.Actor(ctx), in)
		return nil
	})
	return out, err
}

// othersRemain reports whether somebody other than the revoked operator can still connect with a certificate: the
// caller, or an operator with a valid certificate from this server.
func (tx *tx) othersRemain(actor, revoked string) bool {
	asks, _ := strings.CutPrefix(actor, core.ActorOperator)
	for name, op := range tx.Registry.Operators {
		if name != revoked && (name == asks || len(op.Good(tx.Now)) > 0) {
			return true
		}
	}
	return asks != revoked && asks != core.LocalOperator
}

// RevokeToken implements tutti.Tokens.
func (s *Keys) RevokeToken(ctx context.Context, id tutti.TokenID) error {
	return s.lasting(ctx, "revoke the token "+string(id), func(tx *tx) error {
		t := tx.Registry.Tokens[id]
		switch {
		case t == nil:
			return tutti.Errorf(tutti.CodeNotFound, "no token %q; see: tutti token list", string(id))
		case t.Uses <= 1 && len(t.Used) > 0:
			node := slices.Sorted(maps.Values(t.Used))[0]
			return tutti.Errorf(tutti.CodeConflict, "the token %s was used by node %s; to remove the node: tutti node remove %s", id, node, node)
		case !t.Revoked:
			tx.Emit(tutti.Actor(ctx), &tutti.TokenRevoked{Token: id})
		}
		return nil
	})
}
