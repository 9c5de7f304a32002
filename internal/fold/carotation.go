package fold

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Rotation is how far the CA and the keys of the bus are rotated (ADR 0027).
type Rotation struct {
	Last  *tutti.CARotated // nil: they never were
	At    time.Time        // of Last
	Began time.Time        // of the rotation that Last belongs to
}

func (r *Rotation) apply(e tutti.Event, b *tutti.CARotated) {
	if !r.Phase().Rotates() {
		r.Began = e.At
	}
	r.Last, r.At = b, e.At
}

// Phase is how far the last rotation has come; empty: there was none.
func (r Rotation) Phase() tutti.RotationPhase {
	if r.Last == nil {
		return ""
	}
	return r.Last.Phase
}
