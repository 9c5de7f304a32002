package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
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
	*state
	now    time.Time
	events []tutti.Event
	cuts   []int // numbers of events after which the append may be parted
	server *Server
}

// mayCut says that what was emitted up to here need not be seen together with
// what follows.
func (tx *tx) mayCut() { tx.cuts = append(tx.cuts, len(tx.events)) }

// emit applies an event and keeps it for the append.
func (tx *tx) emit(by string, body tutti.Body) {
	e := tutti.Event{Seq: tx.seq + 1, At: tx.now.UTC(), By: by, Body: body}
	tx.apply(e)
	tx.events = append(tx.events, e)
}

// state is everything that the log says, folded.
type state struct {
	seq      uint64
	through  uint64 // of the latest snapshot
	engine   *engine.State
	data     *data.State
	converge *converge.State
	registry *registry
	denials  denials
}

func newState() *state {
	s := &state{engine: engine.NewState(), data: data.NewState(), registry: newRegistry()}
	s.converge = converge.New(s.engine, s.data)
	return s
}

func (s *state) apply(e tutti.Event) {
	s.seq = e.Seq
	gone := s.engine.Apply(e)
	s.data.Apply(e)
	s.converge.Apply(e)
	s.registry.apply(e)
	s.registry.unclaim(gone...)
	if b, ok := e.Body.(*tutti.SnapshotTaken); ok {
		s.through = b.Through
	}
}
