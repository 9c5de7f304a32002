package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/policy"
)

// DecidesItself reports whether the writer decides by itself on so much.
func DecidesItself(size, exports, keys int) bool {
	return (&published{exports: make([]policy.Inspected, exports), keys: make([]string, keys)}).light(size)
}

// Decides returns what is decided on exports of a node beside the writer, and what the writer takes of that.
func (s *Nodes) Decides(ctx context.Context, node tutti.NodeName, exports []tutti.Export, between func()) (beside, taken error) {
	p := publishing(exports, nil)
	_ = s.Look(ctx, func(v explain.View) error {
		tx := s.looks(ctx, v)
		beside = tx.mayPublish(tx.Registry.Nodes[node], nil, p)
		return nil
	})
	between()
	return beside, s.do(ctx, func(tx *tx) error { return tx.mayPublish(tx.Registry.Nodes[node], nil, p) })
}

// CheckAnswer refuses an answer that nobody can pay for.
func CheckAnswer(out any) error { return checkAnswer(out) }

// TooLarge says what an answer of so many bytes is made of.
func TooLarge(size int, exports []tutti.Export) error { return tooLarge(size, exports) }
