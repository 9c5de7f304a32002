package operators

import (
	"context"
	"encoding/json"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// SetValue implements tutti.Values.
func (s *Operators) SetValue(ctx context.Context, key string, value json.RawMessage) error {
	if err := s.Opts.Space(); err != nil {
		return err
	}
	return s.operatorValue(ctx, wire.Publish{Key: key, Value: value})
}

// UnsetValue implements tutti.Values.
func (s *Operators) UnsetValue(ctx context.Context, key string) error {
	return s.operatorValue(ctx, wire.Publish{Key: key, Withdraw: true})
}

// Effect implements tutti.Values. The effect shows who reads a value, and whether a guess of the value is correct.
// So Effect refuses callers who may neither read nor set the value.
func (s *Operators) Effect(ctx context.Context, key string, value json.RawMessage) (api.Effect, error) {
	if err := s.seesKey(ctx, key); err != nil {
		return api.Effect{}, err
	}
	return s.Reader.Effect(ctx, key, value)
}

func (s *Operators) operatorValue(ctx context.Context, in wire.Publish) error {
	in, err := data.CheckPublish(in)
	if err != nil {
		return err
	}
	what := "set"
	if in.Withdraw {
		what = "unset"
	}
	return s.lasting(ctx, what+" "+in.Key, func(tx *tx) error {
		if err := tx.May(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: what + " " + in.Key, Key: in.Key}); err != nil {
			return err
		}
		if err := tx.Data.MayChange(in); err != nil {
			return err
		}
		if _, is := tx.Data.Secret(in.Key); is && !in.Withdraw {
			return tutti.Errorf(tutti.CodeConflict, "%q is a secret: set it with --secret, or unset it first", in.Key)
		}
		if !in.Withdraw {
			if err := tx.fewValues(ctx, in.Key, data.VolumeOfValue(in.Key, in.Value), false); err != nil {
				return err
			}
		}
		by := tutti.Actor(ctx)
		before, _ := tx.Data.Value(in.Key)
		if err := tx.SetValue(by, "", nil, in); err != nil {
			return err
		}
		if after, found := tx.Data.Value(in.Key); !found || after.Owner != before.Owner {
			tx.tookFrom(by, before.Owner)
		}
		return nil
	})
}

// tookFrom records that somebody has taken a value from a node, so that the node must run again. For this, tookFrom
// emits a set of exports that no run has published. The set contains the exports that the node has now.
func (tx *tx) tookFrom(by string, node tutti.NodeName) {
	if n := tx.Registry.Nodes[node]; n != nil {
		exports := tx.Data.Exports(node)
		tx.Emit(by, &tutti.ExportsSet{Node: node, Set: n.Exports, Count: len(exports), Exports: exports})
	}
}
