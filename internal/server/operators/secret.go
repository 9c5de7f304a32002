package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/policy"
)

// SealSecret implements tutti.Secrets.
func (s *Keys) SealSecret(ctx context.Context, in tutti.SealSecret) error {
	if err := s.Opts.Space(); err != nil {
		return err
	}
	if err := in.Validate(); err != nil {
		return err
	}
	return s.lasting(ctx, "set "+in.Key, func(tx *tx) error {
		if err := tx.May(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: "set " + in.Key, Key: in.Key}); err != nil {
			return err
		}
		if err := tx.fewValues(ctx, in.Key, data.VolumeOfSecret(in.Secret), in.Adds); err != nil {
			return err
		}
		before, _ := tx.Data.Value(in.Key)
		owner := tutti.NodeName("")
		if in.Adds {
			owner = before.Owner // the new pieces do not change who owns the secret
		}
		if err := tx.Seal(tutti.Actor(ctx), owner, nil, in); err != nil {
			return err
		}
		if !in.Adds && before.Owner != "" {
			tx.tookFrom(tutti.Actor(ctx), before.Owner)
		}
		return nil
	})
}

// RecoverSecret implements tutti.Secrets.
func (s *Keys) RecoverSecret(ctx context.Context, key string) (tutti.Secret, error) {
	var out tutti.Secret
	err := s.do(ctx, func(tx *tx) error {
		if err := tx.May(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: "recover " + key, Key: key}); err != nil {
			return err
		}
		secret, is := tx.Data.Secret(key)
		if !is {
			return tutti.Errorf(tutti.CodeNotFound, "no secret %q; see: tutti secret list", key)
		}
		out = secret.Secret
		return nil
	})
	return out, err
}

// SecretEffect implements tutti.Secrets. The effect shows who reads a secret. So SecretEffect refuses callers who may
// neither read nor set the secret.
func (s *Keys) SecretEffect(ctx context.Context, in api.SecretEffectQuery) (api.Effect, error) {
	if err := s.seesKey(ctx, in.Key); err != nil {
		return api.Effect{}, err
	}
	return s.Reader.SecretEffect(ctx, in)
}

// seesKey refuses callers who may neither read nor set a key.
func (s handler) seesKey(ctx context.Context, key string) error {
	sees := false
	if err := s.Look(ctx, func(v explain.View) error { sees = v.Sees()(key); return nil }); err != nil || sees {
		return err
	}
	return s.do(ctx, func(tx *tx) error {
		if err := tx.May(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: "set " + key, Key: key}); err != nil {
			return err
		}
		return tutti.Errorf(tutti.CodeUnavailable, "the access of the fleet file has just changed; ask again")
	})
}
