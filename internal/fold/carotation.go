package fold

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Rotation is how far the CA and the keys of the bus are rotated (ADR 0027).
type Rotation struct {
	Last  *tutti.CARotated // nil: they were never rotated
	At    time.Time        // time of Last
	Began time.Time        // when the rotation of Last began
}

func (r *Rotation) apply(e tutti.Event, b *tutti.CARotated) {
	if !r.Phase().Rotates() {
		r.Began = e.At
	}
	r.Last, r.At = b, e.At
}

// Phase is how far the last rotation has come; empty: there was no rotation.
func (r Rotation) Phase() tutti.RotationPhase {
	if r.Last == nil {
		return ""
	}
	return r.Last.Phase
}
