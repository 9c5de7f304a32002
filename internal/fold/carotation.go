package fold

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Rotation is the state of the rotation of the CA and of the keys of the bus (ADR 0027).
type Rotation struct {
	Last  *tutti.CARotated // nil if there was no rotation yet
	At    time.Time        // time of Last
	Began time.Time        // when the rotation of Last began
}

func (r *Rotation) apply(e tutti.Event, b *tutti.CARotated) {
	if !r.Phase().Rotates() {
		r.Began = e.At
	}
	r.Last, r.At = b, e.At
}

// Phase returns the phase of the last rotation. Phase returns an empty phase if there was no rotation.
func (r Rotation) Phase() tutti.RotationPhase {
	if r.Last == nil {
		return ""
	}
	return r.Last.Phase
}
