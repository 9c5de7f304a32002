package api

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
)

// Secrets are the sealed values. The server never has a secret in clear.
type Secrets interface {
	// Recipients returns the keys to which a secret for some targets has to be sealed now.
	Recipients(ctx context.Context, targets []string) (tutti.Recipients, error)
	// SealSecret gives a key a secret, or pieces to the one that it has. CodeConflict: the secret has changed
	// meanwhile, or a node has another key by now or is not a target.
	SealSecret(ctx context.Context, in tutti.SealSecret) error
	// ListSecrets is sorted by key.
	ListSecrets(ctx context.Context) ([]SecretView, error)
	// RecoverSecret returns a secret as it is sealed to the recovery key, without pieces.
	RecoverSecret(ctx context.Context, key string) (tutti.Secret, error)
	// SecretEffect is Values.Effect of a new secret for some targets.
	SecretEffect(ctx context.Context, in AskSecretEffect) (Effect, error)
}

// AskSecretEffect asks what a new secret would cause.
type AskSecretEffect struct {
	Key string   `json:"key"`
	For []string `json:"for"`
}

// SecretView is what is known of a secret without opening it. The nodes are sorted.
type SecretView struct {
	Key     string           `json:"key"`
	ID      string           `json:"id"`
	For     []string         `json:"for"`
	Owner   tutti.NodeName   `json:"owner,omitempty"`
	By      string           `json:"by"`
	At      time.Time        `json:"at"`
	Sealed  []tutti.NodeName `json:"sealed"`            // targets that it is sealed to
	Waiting []tutti.NodeName `json:"waiting,omitempty"` // targets that it is not sealed to
	// The secret has to be rotated because of these nodes. It was sealed to them and they are not targets now, or it was
	// sealed to an earlier machine of that name.
	Former   []tutti.NodeName `json:"former,omitempty"`
	Replaced []tutti.NodeName `json:"replaced,omitempty"`
}
