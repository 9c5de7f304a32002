package operators

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
)

// Signing implements tutti.Signings.
func (s *Keys) Signing(ctx context.Context) (tutti.Signing, error) {
	out := tutti.Signing{Fleet: s.Opts.Identity.Fleet()}
	return out, s.Look(ctx, func(v explain.View) error {
		out.Trust = slices.Clone(v.Registry.Trust)
		out.Codes, out.Plans = mayBeOrdered(v.State), v.Registry.Plans
		for _, environment := range slices.Sorted(maps.Keys(v.Registry.Gone)) {
			gone := v.Registry.Gone[environment]
			out.Gone = append(out.Gone, tutti.SignedNow{Environment: environment, Statement: gone.Statement})
		}
		if acting := v.Registry.Acting; acting != nil {
			out.Operators = &acting.Statement
		}
		return nil
	})
}

// mayBeOrdered returns all code that the server may still name in an order to a node.
func mayBeOrdered(s *fold.State) []tutti.SignedNow {
	var out []tutti.SignedNow
	add := func(environment string, code tutti.Digest, last bool) {
		if code == "" || slices.ContainsFunc(out, func(o tutti.SignedNow) bool { return o.Code == code }) {
			return
		}
		now := tutti.SignedNow{Environment: environment, Code: code, Last: last}
		if st, ok := s.Registry.Statements[code]; ok {
			now.Statement = &st
		}
		out = append(out, now)
	}
	for environment, pushed := range s.Registry.Code {
		add(environment, pushed.Code, true)
	}
	slices.SortFunc(out, func(a, b tutti.SignedNow) int { return cmp.Compare(a.Environment, b.Environment) })
	for environment, pushed := range s.Registry.Code {
		add(environment, pushed.Goes(), false)
	}
	s.Engine.Open(func(j *engine.Job) {
		if j.Diff != nil { // its permission to compile is never signed again
			return
		}
		add(j.Env, j.Code, false)
		for environment, code := range j.Codes {
			add(environment, code, false)
		}
	})
	return out
}

// mayPush checks whether signed code may become the current code of its environment. The function refuses code that
// nodes would refuse. The result `again` is true if the code is the current code already. The parameter `counted` is
// true if some environment has code with a counter.
func mayPush(now tutti.CodePushed, in tutti.SignedCode, said tutti.Signed, counted bool) (again bool, err error) {
	code := tutti.DigestOf(in.Manifest)
	switch {
	case said.Old() && counted:
		return false, tutti.Errorf(tutti.CodeRefused, "this tutti is too old to push here: its signature has no counter, and nodes refuse code without a counter; upgrade tutti where you push")
	case said.Old():
		return now.Code == code, nil
	case now.Statement != nil && bytes.Equal(now.Statement.Body, in.Statement.Body):
		return true, nil
	case said.Counter <= now.Counter:
		return false, tutti.Errorf(tutti.CodeConflict, "code of environment %s was signed with the counter %d, and the last push had %d: somebody has pushed meanwhile; push again", said.Environment, said.Counter, now.Counter)
	case tutti.Leaps(now.Counter, said.Counter):
		return false, tutti.Errorf(tutti.CodeRefused, "code of environment %s was signed with the counter %d, and the last push had %d: a counter may be at most %d above the last one; if that was not you, somebody else has the code-signing key", said.Environment, said.Counter, now.Counter, tutti.MaxCounterStep)
	}
	return false, nil
}

// The method `counted` reports whether code of some environment was pushed with a counter.
func (tx *tx) counted() bool {
	for _, pushed := range tx.Registry.Code {
		if pushed.Counter > 0 {
			return true
		}
	}
	return false
}

// SignCode implements tutti.Signings.
func (s *Keys) SignCode(ctx context.Context, in tutti.CodeSign) error {
	if err := s.Opts.Space(); err != nil {
		return err
	}
	return s.lasting(ctx, "sign code", func(tx *tx) error {
		said, err := s.Opts.Identity.Said(tx.Registry.Trust, in.Statement)
		if err != nil {
			return err
		}
		now, ok := tx.Registry.Statements[in.Code]
		switch {
		case !ok:
			return tutti.Errorf(tutti.CodeNotFound, "no node is told to run the code %.19s, or nobody has signed it with a counter", in.Code)
		case !bytes.Equal(now.Body, in.Statement.Body):
			return tutti.Errorf(tutti.CodeConflict, "the code %.19s was pushed again in the meantime", in.Code)
		}
		st, more := signedMore(now, in.Statement, func(st tutti.Statement) bool {
			_, err := s.Opts.Identity.Said(tx.Registry.Trust, st)
			return err == nil
		})
		if more {
			tx.Emit(tutti.Actor(ctx), &tutti.CodeResigned{Environment: said.Environment, Code: in.Code, Counter: said.Counter, Statement: st})
		}
		return nil
	})
}

// signedMore returns a statement with only its valid signatures, and whether one of them is new. Invalid or repeated
// signatures must not go into the log.
func signedMore(now, in tutti.Statement, good func(tutti.Statement) bool) (out tutti.Statement, more bool) {
	out = in
	out.Signatures = nil
	for _, sig := range in.Signatures {
		one := in
		one.Signatures = []tutti.Signature{sig}
		if slices.ContainsFunc(out.Signatures, func(s tutti.Signature) bool { return s.Key == sig.Key }) || !good(one) {
			continue
		}
		out.Signatures = append(out.Signatures, sig)
		more = more || !now.SignedBy(sig.Key)
	}
	return out, more
}

// TrustKeys implements tutti.Signings.
func (s *Keys) TrustKeys(ctx context.Context, in tutti.Statement) error {
	if err := s.Opts.Space(); err != nil {
		return err
	}
	var keys []tutti.NodeKey
	err := s.lasting(ctx, "say which code keys sign", func(tx *tx) error {
		for _, there := range tx.Registry.Trust {
			if there.Kind == in.Kind && bytes.Equal(there.Body, in.Body) {
				return nil
			}
		}
		next, err := s.Opts.Identity.Next(tx.Registry.Trust, in)
		if err != nil {
			return tx.Deny(tutti.Actor(ctx), "say which code keys sign", err)
		}
		if err := tx.stayGood(append(slices.Clone(tx.Registry.Trust), in)); err != nil {
			return err
		}
		tx.Emit(tutti.Actor(ctx), &next)
		keys = slices.Collect(maps.Keys(tx.Registry.Keys))
		return nil
	})
	s.RingClaims(keys)
	return err
}

// TrustOperators implements tutti.Signings.
func (s *Keys) TrustOperators(ctx context.Context, in tutti.Statement) error {
	if err := s.Opts.Space(); err != nil {
		return err
	}
	var keys []tutti.NodeKey
	err := s.lasting(ctx, "say who signs actions", func(tx *tx) error {
		next, err := s.Opts.Identity.Operators(tx.Registry.Trust, in)
		if err != nil {
			return tx.Deny(tutti.Actor(ctx), "say who signs actions", err)
		}
		now := tx.Registry.Acting
		if now == nil {
			now = &tutti.OperatorsTrusted{}
		}
		if !bytes.Equal(now.Statement.Body, in.Body) {
			switch {
			case next.Counter <= now.Counter:
				return tutti.Errorf(tutti.CodeConflict, "somebody has signed another list of operators meanwhile: repeat the command")
			case tutti.Leaps(now.Counter, next.Counter):
				err := tutti.Errorf(tutti.CodeRefused, "the list of operators was signed with the counter %d, and the last one had %d: a counter may be at most %d above the last one", next.Counter, now.Counter, tutti.MaxCounterStep)
				return tx.Deny(tutti.Actor(ctx), "say who signs actions", err)
			}
		}
		st, more := signedMore(now.Statement, in, func(st tutti.Statement) bool {
			_, err := s.Opts.Identity.Operators(tx.Registry.Trust, st)
			return err == nil
		})
		if next.Statement = st; more || !bytes.Equal(now.Statement.Body, in.Body) {
			tx.Emit(tutti.Actor(ctx), &next)
			keys = slices.Collect(maps.Keys(tx.Registry.Keys))
		}
		return nil
	})
	s.RingClaims(keys)
	return err
}

// stayGood refuses a change of keys if the server may still order code that the new keys have not
// signed.
func (tx *tx) stayGood(trust []tutti.Statement) error {
	for _, c := range mayBeOrdered(tx.State) {
		if c.Statement == nil {
			return tutti.Errorf(tutti.CodeConflict, "the code %.19s of environment %s was pushed by an earlier release: push it again first (tutti code push), or wait for the jobs that use it", c.Code, c.Environment)
		}
		if _, err := tx.Core.Opts.Identity.Said(trust, *c.Statement); err != nil {
			return tutti.Wrap(tutti.CodeConflict, err, "nodes would refuse the code %.19s", c.Code)
		}
	}
	if acting := tx.Registry.Acting; acting != nil {
		_, err := tx.Core.Opts.Identity.Operators(trust, acting.Statement)
		return tutti.Wrap(tutti.CodeConflict, err, "nodes would refuse it")
	}
	return nil
}
