package httpapi

import (
	"context"

	"github.com/tutti-project/tutti/api"
)

// overviews has the calls of a Client about the whole fleet.
type overviews struct{ c *Client }

// NodeCauses implements api.Overviews.
func (o overviews) NodeCauses(ctx context.Context) ([]api.NodeCause, error) {
	return ask[[]api.NodeCause](ctx, o.c, callCauses, nothing{})
}

// WatchFleet implements api.Overviews.
func (o overviews) WatchFleet(ctx context.Context, in api.WatchFleet, yield func(api.FleetFrame) error) error {
	return follow(ctx, o.c, callWatchFleet, in, yield, "while watching the fleet; watch again with the cursor of the last frame")
}
