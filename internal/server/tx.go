package server

import (
	"strings"
	"time"

	"github.com/tutti-project/tutti"
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
	server *Server
}

// emit applies an event and keeps it for the append.
func (tx *tx) emit(by string, body tutti.Body) {
	e := tutti.Event{Seq: tx.seq + 1, At: tx.now.UTC(), By: by, Body: body}
	tx.apply(e)
	tx.events = append(tx.events, e)
}

// maxDenials bounds how many attempts are recorded in a minute: whoever is
// refused must not be able to fill the log.
const maxDenials = 300

// deny records an attempt without a grant, the same one once a minute, and
// returns its error.
func (tx *tx) deny(who, what string, err error) error {
	if tx.now.Sub(tx.denials.since) > time.Minute {
		tx.denials = denials{since: tx.now, seen: map[string]bool{}, counts: map[bool]int{}}
	}
	what = words(what)
	key := who + "\x00" + what
	if tx.denials.seen[key] || tx.denials.counts[isNode(who)] >= maxDenials {
		return err
	}
	tx.denials.seen[key] = true
	tx.denials.counts[isNode(who)]++
	tx.emit(actorServer, &tutti.Denied{Who: who, What: what, Reason: words(err.Error())})
	return err
}

// isNode tells those who proved a node's key from everybody else: strangers who
// knock must not use up the room for what nodes try.
func isNode(who string) bool { return strings.HasPrefix(who, actorNode("")) }

// denials are the attempts that were recorded since a minute began.
type denials struct {
	since  time.Time
	seen   map[string]bool
	counts map[bool]int // of nodes, and of everybody else
}

// state is everything that the log says, folded.
type state struct {
	seq      uint64
	through  uint64 // of the latest snapshot
	engine   *engine.State
	data     *data.State
	registry *registry
	denials  denials
}

func newState() *state {
	return &state{engine: engine.NewState(), data: data.NewState(), registry: newRegistry()}
}

func (s *state) apply(e tutti.Event) {
	s.seq = e.Seq
	gone := s.engine.Apply(e)
	s.data.Apply(e)
	s.registry.apply(e)
	s.registry.unclaim(gone...)
	if b, ok := e.Body.(*tutti.SnapshotTaken); ok {
		s.through = b.Through
	}
}
