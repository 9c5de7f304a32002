package httpapi

import (
	"context"

	"github.com/tutti-project/tutti"
)

// Signing implements tutti.Signings.
func (c *Client) Signing(ctx context.Context) (tutti.Signing, error) {
	return ask[tutti.Signing](ctx, c, callSigning, nothing{})
}

// SignCode implements tutti.Signings.
func (c *Client) SignCode(ctx context.Context, in tutti.CodeSign) error {
	return tell(ctx, c, callSignCode, in)
}

// TrustKeys implements tutti.Signings.
func (c *Client) TrustKeys(ctx context.Context, in tutti.Statement) error {
	return tell(ctx, c, callTrustKeys, in)
}

// TrustOperators implements tutti.Signings.
func (c *Client) TrustOperators(ctx context.Context, in tutti.Statement) error {
	return tell(ctx, c, callTrustOps, in)
}
