package writer

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// Actor is the actor of the server's own events.
const Actor = "server"

// Tx is one batch of commands that run on the state. An event that Tx emits changes the state at once for
// the commands after it. The server shows the event to others only when the event is on disk. A command
// that fails must not have emitted any event except a denial, because events cannot be removed again.
type Tx struct {
	*fold.State
	Now   time.Time
	Since time.Time // the deadlines of nodes and waits begin at this time or later

	// Looks is true if the state is a version for readers. In this case Tx emits nothing.
	// Records is true if the work wanted to emit an event. In this case the work must run
	// again in the writer.
	Looks, Records bool

	events []tutti.Event
	cuts   []int // the append may be split after this many events
}

// MayCut says that the events before this call and the events after this call may go into two appends.
func (tx *Tx) MayCut() { tx.cuts = append(tx.cuts, len(tx.events)) }

// Emit applies an event and collects it for the append.
func (tx *Tx) Emit(by string, body tutti.Body) {
	if tx.Looks {
		tx.Records = true
		return
	}
	e := tutti.Event{Seq: tx.Seq + 1, At: tx.Now.UTC(), By: by, Body: body}
	tx.events = append(tx.events, e) // before Apply, because Writer.work must see the event if Apply panics
	tx.Apply(e)
}
