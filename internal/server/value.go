package server

import (
	"context"
	"encoding/json"

	"github.com/tutti-project/tutti"
)

// SetValue implements tutti.Values.
func (s *Server) SetValue(ctx context.Context, key string, value json.RawMessage) error {
	if err := s.opts.Space(); err != nil {
		return err
	}
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
		if err := tx.mayChange(in); err != nil {
			return err
		}
		return tx.setValue(tutti.Actor(ctx), "", nil, in)
	})
}

// mayChange refuses to withdraw what is not there.
func (tx *tx) mayChange(in tutti.Publish) error {
	if _, found := tx.data.Value(in.Key); in.Withdraw && !found {
		return tutti.Errorf(tutti.CodeNotFound, "no value %q; see: tutti data list", in.Key)
	}
	return nil
}

// ListValues implements tutti.Values, sorted by key.
func (s *Server) ListValues(ctx context.Context, prefix string) ([]tutti.ValueView, error) {
	var out []tutti.ValueView
	err := s.do(ctx, func(tx *tx) error {
		out = tx.data.Values(prefix)
		return nil
	})
	return out, err
}
