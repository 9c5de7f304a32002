package api

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
)

// Secrets gives access to sealed values. The server never has the clear text of a secret.
type Secrets interface {
	// Recipients returns the keys to which a secret for these targets must be sealed now.
	Recipients(ctx context.Context, targets []string) (tutti.Recipients, error)
	// SealSecret sets a key to a new secret, or adds pieces to the present secret. The error is
	// CodeConflict if the secret has changed since it was read, or if a node has another key now or is no
	// longer a target.
	SealSecret(ctx context.Context, in tutti.SealSecret) error
	// ListSecrets returns the secrets sorted by key.
	ListSecrets(ctx context.Context) ([]SecretView, error)
	// RecoverSecret returns the copy of a secret that is sealed to the recovery key, without pieces.
	RecoverSecret(ctx context.Context, key string) (tutti.Secret, error)
	// SecretEffect is like Values.Effect, for a new secret for some targets.
	SecretEffect(ctx context.Context, in SecretEffectQuery) (Effect, error)
}

// SecretEffectQuery asks which runs a new secret would cause.
type SecretEffectQuery struct {
	Key string   `json:"key"`
	For []string `json:"for"`
}

// SecretView shows a secret without opening it. The nodes are sorted.
type SecretView struct {
	Key     string           `json:"key"`
	ID      string           `json:"id"`
	For     []string         `json:"for"`
	Owner   tutti.NodeName   `json:"owner,omitempty"`
	By      string           `json:"by"`
	At      time.Time        `json:"at"`
	Sealed  []tutti.NodeName `json:"sealed"`            // The field Sealed lists targets that have a piece.
	Waiting []tutti.NodeName `json:"waiting,omitempty"` // The field Waiting lists targets that have no piece yet.
	// If Former or Replaced is not empty, the operator must rotate the secret. The secret was sealed to the
	// nodes in Former, but they are no longer targets. The secret was sealed to an earlier machine of each node
	// in Replaced.
	Former   []tutti.NodeName `json:"former,omitempty"`
	Replaced []tutti.NodeName `json:"replaced,omitempty"`
}
