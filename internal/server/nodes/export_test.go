package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/policy"
)

// DecidesItself reports whether the writer checks a gate of this size itself.
func DecidesItself(size, exports, keys int) bool {
	return (&published{exports: make([]policy.Inspected, exports), keys: make([]string, keys)}).light(size)
}

// Decides returns two decisions on the exports of a node. The first decision is made outside the writer,
// before the call of `between`. The writer makes or uses the second decision after that call.
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

// CheckAnswer refuses an answer that is too large for any share.
func CheckAnswer(out any) error { return checkAnswer(out) }

// TooLarge returns the error for an answer of this size.
func TooLarge(size int, exports []tutti.Export) error { return tooLarge(size, exports) }
