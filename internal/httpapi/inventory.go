package httpapi

import (
	"context"

	"github.com/tutti-project/tutti/api"
)

// inventories has the call of a Client about facts and catalogs.
type inventories struct{ c *Client }

// Query implements api.Inventories.
func (i inventories) Query(ctx context.Context, in api.Query, yield func(api.QueriedNode) error) error {
	return follow(ctx, i.c, callQuery, in, yield, "in the middle of the answer; run the command again")
}
