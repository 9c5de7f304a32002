package writer

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// Actor is the actor of the server's own events.
const Actor = "server"

// Tx is one batch of commands on the state. What it emits takes effect at
// once for what comes after it in the batch, and leaves the server only when
// it is on disk. A command that fails must not have emitted anything but a
// denial, because events cannot be taken back.
type Tx struct {
	*fold.State
	Now   time.Time
	Since time.Time // deadlines of nodes and waits begin at this time or later

	// Looks: the state is a version for readers. Nothing is emitted. Records says that the work
	// wanted to emit something, and has to run again in the writer.
	Looks, Records bool

	events []tutti.Event
	cuts   []int // numbers of events after which the append may be split
}

// MayCut says that events up to here and later ones may become visible
// separately.
func (tx *Tx) MayCut() { tx.cuts = append(tx.cuts, len(tx.events)) }

// Emit applies an event and keeps it for the append.
func (tx *Tx) Emit(by string, body tutti.Body) {
	if tx.Looks {
		tx.Records = true
		return
	}
	e := tutti.Event{Seq: tx.Seq + 1, At: tx.Now.UTC(), By: by, Body: body}
	tx.events = append(tx.events, e) // first: see Writer.work
	tx.Apply(e)
}
