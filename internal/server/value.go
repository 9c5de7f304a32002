package server

import (
	"context"
	"encoding/json"

	"github.com/tutti-project/tutti"
)

// SetValue implements tutti.Values.
func (s *Server) SetValue(ctx context.Context, key string, value json.RawMessage) error {
	return s.operatorValue(ctx, tutti.Publish{Key: key, Value: value})
}

// UnsetValue implements tutti.Values.
func (s *Server) UnsetValue(ctx context.Context, key string) error {
	return s.operatorValue(ctx, tutti.Publish{Key: key, Withdraw: true})
}

func (s *Server) operatorValue(ctx context.Context, in tutti.Publish) error {
	in, err := checkValue(in)
	if err != nil {
		return err
	}
	return s.do(ctx, func(tx *tx) error {
		if _, found := tx.data.Value(in.Key); in.Withdraw && !found {
			return tutti.Errorf(tutti.CodeNotFound, "no value %q; see: tutti data list", in.Key)
		}
		return tx.setValue(tutti.Actor(ctx), "", nil, in)
	})
}

// ListValues implements tutti.Values, sorted by key.
func (s *Server) ListValues(ctx context.Context, pattern string) ([]tutti.ValueView, error) {
	if err := tutti.ValidatePattern(pattern); err != nil {
		return nil, err
	}
	var out []tutti.ValueView
	err := s.do(ctx, func(tx *tx) error {
		for v := range tx.data.Values(pattern) {
			out = append(out, tutti.ValueView{
				Key: v.Key, Value: v.JSON, Owner: v.Owner, By: v.By, At: v.At, Job: v.Job, Run: v.Run, Seq: v.Seq,
			})
		}
		return nil
	})
	return out, err
}
