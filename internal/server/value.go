package server

import (
	"context"
	"encoding/json"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
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
	in, err := data.CheckPublish(in)
	if err != nil {
		return err
	}
	return s.do(ctx, func(tx *tx) error {
		if err := tx.Data.MayChange(in); err != nil {
			return err
		}
		return tx.setValue(tutti.Actor(ctx), "", nil, in)
	})
}
