package agent

import (
	"context"

	"github.com/tutti-project/tutti"
)

// The method `enc` answers with the classes and parameters that the site's ENC gives to the node.
func (s *socket) enc(ctx context.Context, req request) (response, error) {
	a, err := s.ask(ctx, tutti.Query{Kind: tutti.QueryENC}, req.At)
	if err != nil {
		return nil, err
	}
	out := response{"found": a.Answer.Found, "degraded": a.Degraded}
	if a.Answer.Found {
		out["answer"] = a.Answer.Value
	}
	return out, nil
}
