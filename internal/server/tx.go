package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

const actorServer = "server"

// command is work for the writer and where its answer goes.
type command struct {
	work func(tx *tx) error
	done chan error
}

// tx is one batch of commands on the state. What it emits takes effect at
// once for what comes after it in the batch, and leaves the server only when
// it is on disk. A command that fails must not have emitted anything but a
// denial: there is no way back.
type tx struct {
	*fold.State
	now    time.Time
	events []tutti.Event
	cuts   []int // numbers of events after which the append may be parted
	server *Server
	ticket tutti.Digest // of the message that the command serves
	notNow tutti.Code   // answers it if it comes from a machine that is not the node, see refusalOf

	// looks: the state is a version for readers. Nothing is emitted; records says that the work
	// wanted to, and has to run again in the writer.
	looks, records bool
}

// mayCut says that what was emitted up to here need not be seen together with
// what follows.
func (tx *tx) mayCut() { tx.cuts = append(tx.cuts, len(tx.events)) }

// emit applies an event and keeps it for the append.
func (tx *tx) emit(by string, body tutti.Body) {
	if tx.looks {
		tx.records = true
		return
	}
	e := tutti.Event{Seq: tx.Seq + 1, At: tx.now.UTC(), By: by, Body: body}
	tx.events = append(tx.events, e) // first: see writer.work
	tx.Apply(e)
}
