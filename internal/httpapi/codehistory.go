package httpapi

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// histories has the calls of a Client about the earlier code of environments.
type histories struct{ c *Client }

// ListCode implements tutti.CodeHistory.
func (h histories) ListCode(ctx context.Context, in api.CodeQuery) ([]api.CodeEntry, error) {
	return ask[[]api.CodeEntry](ctx, h.c, callListCode, in)
}

// GetCode implements tutti.CodeHistory.
func (h histories) GetCode(ctx context.Context, in api.CodeQuery) (api.CodeKept, error) {
	return ask[api.CodeKept](ctx, h.c, callGetCode, in)
}

// RetireCode implements tutti.CodeHistory.
func (h histories) RetireCode(ctx context.Context, in api.RetireCode) (tutti.CodeRetired, error) {
	return ask[tutti.CodeRetired](ctx, h.c, callRetireCode, in)
}
