package server

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// Emit appends what no call of an operator or a node makes by itself.
func (s *Server) Emit(body tutti.Body) error {
	return s.do(context.Background(), func(tx *tx) error {
		tx.emit(actorServer, body)
		return nil
	})
}

// State is what a server folds out of a log.
type State struct{ folded *state }

// State returns what the server has in memory, as long as nobody asks it anything.
func (s *Server) State() State {
	var out State
	_ = s.do(context.Background(), func(tx *tx) error {
		out.folded = tx.state
		return nil
	})
	return out
}

// Sweep removes blobs now.
func (s *Server) Sweep(ctx context.Context) error {
	return (&keeper{s, s.opts.Log.(trimmedLog)}).sweep(ctx)
}

// Size returns how many jobs and runs the server has in memory.
func (s State) Size() (jobs, runs int) {
	return len(s.folded.engine.Jobs), len(s.folded.engine.Runs)
}

// Fold folds events whose exports are at hand.
func Fold(events ...[]tutti.Event) State {
	s := newState()
	for _, list := range events {
		for _, e := range list {
			s.apply(e)
		}
	}
	return State{s}
}

// Exports returns what a node exports.
func (s State) Exports(node tutti.NodeName) []tutti.Export { return s.folded.data.Exports(node) }

// Operators returns who is known after events.
func Operators(events []tutti.Event) []string {
	known := operators{}
	for _, e := range events {
		known.apply(e)
	}
	return slices.Sorted(maps.Keys(known))
}

// Hydrate loads the exports of events.
func Hydrate(blobs tutti.Blobs, events []tutti.Event) error {
	for _, e := range events {
		if err := hydrate(context.Background(), blobs, e.Body); err != nil {
			return err
		}
	}
	return nil
}

// Diff compares all that two folds have in memory: whatever the server answers
// or decides comes from there. Tokens of the first that nobody can use at the
// given time may be missing in the second.
func (s State) Diff(other State, now time.Time) string {
	for id, t := range s.folded.registry.tokens {
		used := false
		for _, n := range s.folded.registry.nodes {
			used = used || n.Token == id
		}
		if other.folded.registry.tokens[id] == nil && !used && t.Expires.Before(now) {
			delete(s.folded.registry.tokens, id)
		}
	}
	s.folded.denials, other.folded.denials = denials{}, denials{} // not of the log
	for _, n := range s.folded.registry.nodes {
		n.stored = 0
	}
	for _, n := range other.folded.registry.nodes {
		n.stored = 0
	}
	// Who is to be looked at anew is no state: whoever has not been looked at is.
	s.folded.converge.Needy(view)
	other.folded.converge.Needy(view)
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	return cmp.Diff(s.folded, other.folded, all, cmpopts.EquateEmpty())
}

var view = converge.View{Has: func(tutti.NodeName) converge.Has { return converge.Has{} }}

// ChangesWithin returns the changes of runs within other bounds.
func (s *Server) ChangesWithin(ctx context.Context, runs []tutti.RunReport, reports, bytes int) (tutti.JobChanges, error) {
	var out tutti.JobChanges
	err := s.fillChanges(ctx, runs, toRead{reports, bytes}, &out)
	return out, err
}
