package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// operators are those of whom the log knows, by name.
type operators map[string]*operator

// operator is what the log says about one.
type operator struct {
	serials map[string]time.Time // issued since the last revocation → end
	codeKey bool
	revoked time.Time // the last revocation; only serials are good after it
	reason  string
}

const actorOperator = "operator:"

func (o operators) apply(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.OperatorIssued:
		op := o.get(b.Operator)
		op.serials[b.Serial] = b.Expires
		op.codeKey = op.codeKey || b.CodeKey
	case *tutti.OperatorRevoked:
		o[b.Operator] = &operator{serials: map[string]time.Time{}, revoked: e.At, reason: b.Reason}
	case *tutti.SnapshotTaken:
		for _, name := range b.Operators {
			o.get(name)
		}
	}
}

func (o operators) get(name string) *operator {
	if o[name] == nil {
		o[name] = &operator{serials: map[string]time.Time{}}
	}
	return o[name]
}

// noteFirst puts the first operator's certificate into the log, which was made
// before there was one.
func (w *writer) noteFirst(ctx context.Context) error {
	first := w.opts.FirstOperator
	if first == nil || w.state.registry.operators[first.Operator] != nil {
		return nil
	}
	return w.commit(ctx, []*command{{done: make(chan error, 1), work: func(tx *tx) error {
		tx.emit(actorServer, first)
		return nil
	}}})
}

// admit says whether a certificate that our CA signed is good. One that is in no
// log may be of a server that was made before the log had them; after a revocation
// only those are good that are in it.
func (o operators) admit(name, serial string) error {
	op := o[name]
	if op == nil || op.revoked.IsZero() {
		return nil
	}
	if _, ok := op.serials[serial]; ok {
		return nil
	}
	return tutti.Errorf(tutti.CodeUnauthenticated, "operator %s was revoked at %s%s; a new certificate comes from another operator, or on the server from root: tutti operator create %s",
		name, op.revoked.Format(time.RFC3339), because(op.reason), name)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// IssueOperator implements tutti.Operators.
func (s *Server) IssueOperator(ctx context.Context, in tutti.IssueOperator) (tutti.IssuedOperator, error) {
	if in.Operator == LocalOperator {
		return tutti.IssuedOperator{}, tutti.Errorf(tutti.CodeInvalid, "operator name %q is for who comes through the server's own socket", in.Operator)
	}
	out, err := s.opts.Identity.IssueOperator(in.Operator, in.Request)
	if err != nil {
		return out, err
	}
	return out, s.do(ctx, func(tx *tx) error {
		tx.emit(tutti.Actor(ctx), &tutti.OperatorIssued{Operator: in.Operator, Serial: out.Serial, Expires: out.Expires, CodeKey: in.CodeKey})
		return nil
	})
}

// RenewOperator implements tutti.Operators. The certificate that asks stays good
// to its end: the new one may not arrive.
func (s *Server) RenewOperator(ctx context.Context, request []byte) (tutti.IssuedOperator, error) {
	name, ok := strings.CutPrefix(tutti.Actor(ctx), actorOperator)
	if !ok || name == LocalOperator {
		return tutti.IssuedOperator{}, tutti.Errorf(tutti.CodeInvalid, "only an operator who comes with a certificate can renew it")
	}
	out, err := s.opts.Identity.IssueOperator(name, request)
	if err != nil {
		return out, err
	}
	return out, s.do(ctx, func(tx *tx) error {
		tx.emit(tutti.Actor(ctx), &tutti.OperatorIssued{Operator: name, Serial: out.Serial, Expires: out.Expires})
		return nil
	})
}

// ListOperators implements tutti.Operators, sorted by name.
func (s *Server) ListOperators(ctx context.Context) ([]tutti.OperatorView, error) {
	var out []tutti.OperatorView
	err := s.do(ctx, func(tx *tx) error {
		for _, name := range slices.Sorted(maps.Keys(tx.registry.operators)) {
			op := tx.registry.operators[name]
			v := tutti.OperatorView{Operator: name, CodeKey: op.codeKey, Reason: op.reason, Revoked: op.revoked}
			for _, expires := range op.good(tx.now) {
				v.Certificates++
				if expires.After(v.Expires) {
					v.Expires = expires
				}
			}
			out = append(out, v)
		}
		return nil
	})
	return out, err
}

// good returns the ends of the certificates that have not ended.
func (o *operator) good(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Collect(maps.Values(o.serials)), func(end time.Time) bool { return !now.Before(end) })
}

// RevokeOperator implements tutti.Operators.
func (s *Server) RevokeOperator(ctx context.Context, in tutti.RevokeOperator) error {
	in.Reason = words(in.Reason)
	return s.do(ctx, func(tx *tx) error {
		if tx.registry.operators[in.Operator] == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no operator %q is known; see: tutti operator list", in.Operator)
		}
		if !in.Last && !tx.othersRemain(tutti.Actor(ctx), in.Operator) {
			return tutti.Errorf(tutti.CodeConflict, "after this nobody is known to have a certificate; then only root on the server gets in, by its local socket; if you mean it, add --last")
		}
		tx.emit(tutti.Actor(ctx), &tutti.OperatorRevoked{Operator: in.Operator, Reason: in.Reason})
		return nil
	})
}

// othersRemain reports whether somebody else is known to get in with a
// certificate: whoever asks, if he does not revoke himself, or one whom we issued
// a certificate that is good.
func (tx *tx) othersRemain(actor, revoked string) bool {
	asks, _ := strings.CutPrefix(actor, actorOperator)
	for name, op := range tx.registry.operators {
		if name != revoked && (name == asks || len(op.good(tx.now)) > 0) {
			return true
		}
	}
	return asks != revoked && asks != LocalOperator
}

// ListTokens implements tutti.Tokens, the first to end first.
func (s *Server) ListTokens(ctx context.Context) ([]tutti.TokenView, error) {
	var out []tutti.TokenView
	err := s.do(ctx, func(tx *tx) error {
		for _, t := range tx.registry.tokens {
			if !t.revoked && t.boundTo == "" && tx.now.Before(t.Expires) {
				out = append(out, tutti.TokenView{Token: t.Token, Name: t.Name, Groups: t.Groups, Expires: t.Expires})
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b tutti.TokenView) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Token, b.Token))
	})
	return out, err
}

// RevokeToken implements tutti.Tokens.
func (s *Server) RevokeToken(ctx context.Context, id tutti.TokenID) error {
	return s.do(ctx, func(tx *tx) error {
		t := tx.registry.tokens[id]
		switch {
		case t == nil:
			return tutti.Errorf(tutti.CodeNotFound, "no token %q; see: tutti token list", string(id))
		case t.boundTo != "":
			return tutti.Errorf(tutti.CodeConflict, "the token %s was used by node %s; to take that out: tutti node remove %s", id, t.node, t.node)
		case !t.revoked:
			tx.emit(tutti.Actor(ctx), &tutti.TokenRevoked{Token: id})
		}
		return nil
	})
}
