package explain

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// ListSecrets implements tutti.Secrets. An operator who may not read values gets only the secrets that they may set.
func (rd *Reader) ListSecrets(ctx context.Context) ([]api.SecretView, error) {
	out := []api.SecretView{}
	err := rd.look(ctx, func(v View) error {
		sees := v.Sees()
		for _, secret := range v.Data.Secrets() {
			if sees(secret.View.Key) {
				out = append(out, v.SecretView(secret))
			}
		}
		return nil
	})
	return out, err
}

// Recipients implements tutti.Secrets.
func (rd *Reader) Recipients(ctx context.Context, targets []string) (out tutti.Recipients, err error) {
	err = rd.look(ctx, func(v View) error {
		out, err = v.Recipients(targets)
		return err
	})
	return out, err
}

// SecretEffect implements tutti.Secrets. The caller must be allowed to see the key.
func (rd *Reader) SecretEffect(ctx context.Context, in api.SecretEffectQuery) (api.Effect, error) {
	if err := tutti.ValidateKey(in.Key); err != nil {
		return api.Effect{}, err
	}
	var out api.Effect
	err := rd.look(ctx, func(v View) error {
		to, err := v.Recipients(in.For)
		if err != nil {
			return err
		}
		nodes := make([]tutti.NodeName, len(to.Nodes))
		for i, n := range to.Nodes {
			nodes[i] = n.Node
		}
		out = v.effect(v.Data.AffectsSealed(in.Key, nodes))
		return nil
	})
	return out, err
}
