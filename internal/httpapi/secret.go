package httpapi

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Recipients implements tutti.Secrets.
func (c *Client) Recipients(ctx context.Context, targets []string) (tutti.Recipients, error) {
	return ask[tutti.Recipients](ctx, c, callRecipients, targets)
}

// SealSecret implements tutti.Secrets.
func (c *Client) SealSecret(ctx context.Context, in tutti.SealSecret) error {
	return tell(ctx, c, callSealSecret, in)
}

// ListSecrets implements tutti.Secrets.
func (c *Client) ListSecrets(ctx context.Context) ([]api.SecretView, error) {
	return ask[[]api.SecretView](ctx, c, callListSecrets, nothing{})
}

// RecoverSecret implements tutti.Secrets.
func (c *Client) RecoverSecret(ctx context.Context, key string) (tutti.Secret, error) {
	return ask[tutti.Secret](ctx, c, callRecover, key)
}

// SecretEffect implements tutti.Secrets.
func (c *Client) SecretEffect(ctx context.Context, in api.SecretEffectQuery) (api.Effect, error) {
	return ask[api.Effect](ctx, c, callSecretEffect, in)
}
