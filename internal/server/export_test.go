package server

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
)

// Emit appends an event that no single call of an operator or a node would cause.
func (s *Server) Emit(body tutti.Body) error {
	return s.emit(context.Background(), body)
}

// EmitBy appends the events of an actor in one append.
func (s *Server) EmitBy(by string, bodies ...tutti.Body) error {
	return s.core.Do(context.Background(), func(tx *core.Tx) error {
		for _, body := range bodies {
			tx.Emit(by, body)
		}
		return nil
	})
}

func (s *Server) emit(ctx context.Context, body tutti.Body) error {
	return s.core.Do(ctx, func(tx *core.Tx) error {
		tx.Emit(core.ActorServer, body)
		return nil
	})
}

// State is the folded log of a server.
type State struct{ folded *fold.State }

// State returns the state in the memory of the server. While the test uses this state, it must not
// call the server.
func (s *Server) State() State {
	var out State
	_ = s.core.Do(context.Background(), func(tx *core.Tx) error {
		out.folded = tx.State
		return nil
	})
	return out
}

// Retired appends the event that a sweep appends before it removes reports. A sweep itself does nothing until its server
// has run for an hour.
func (s *Server) Retired(ctx context.Context) error { return s.emit(ctx, &tutti.ReportsRetired{}) }

// Sweep removes blobs now.
func (s *Server) Sweep(ctx context.Context) error {
	return s.core.Past.Sweep(ctx, s.emit)
}

// The following constants are the size of the largest gate and the size of a node's share.
const (
	LargestGate = core.MaxBlob
	CostAtOnce  = share.CostAtOnce
)

// CostOfGate returns the cost of reading a gate with this many bytes.
func CostOfGate(size int) int { return share.CostOfGate(size) }

// CostOfServed returns how much of a node's share the server uses up when it reads exports of this
// size and number.
func CostOfServed(size, count int) int { return share.CostOfServed(size, count) }

// SpendAllBut uses up the share of a node until only the amount `left` is left.
func (s *Server) SpendAllBut(key tutti.NodeKey, left int) {
	now := time.Now()
	_ = s.core.Shares.Owe(key, s.core.Shares.Left(key, now)-left, now)
}

// WasRefused adds this many bytes to the refused gates of a run.
func (s *Server) WasRefused(key tutti.NodeKey, run tutti.RunID, bytes int) {
	s.core.Shares.Refuse(key, run, bytes)
}

// RoomToRead returns how many more bytes the server may have in memory for nodes.
func (s *Server) RoomToRead() int64 {
	return s.core.Readings.Room()
}

// HasLeft sets how many bytes a node has stored since its last result.
func (s *Server) HasLeft(key tutti.NodeKey, bytes int64) {
	_ = s.core.Do(context.Background(), func(*core.Tx) error {
		s.core.Stored[key] = bytes
		return nil
	})
}

// Size returns how many jobs and runs the server has in memory.
func (s State) Size() (jobs, runs int) {
	return len(s.folded.Engine.Jobs), len(s.folded.Engine.Runs)
}

// Fold folds events whose exports are loaded already.
func Fold(events ...[]tutti.Event) State {
	s := fold.New()
	for _, list := range events {
		for _, e := range list {
			s.Apply(e)
		}
	}
	return State{s}
}

// Exports returns what a node exports.
func (s State) Exports(node tutti.NodeName) []tutti.Export { return s.folded.Data.Exports(node) }

// Operators returns the operators that are known after these events.
func Operators(events []tutti.Event) []string {
	known := fold.Operators{}
	for _, e := range events {
		known.Apply(e)
	}
	return slices.Sorted(maps.Keys(known))
}

// Hydrate loads the exports of events from blobs.
func Hydrate(blobs tutti.Blobs, events []tutti.Event) error {
	stored := past.New(past.Options{Blobs: blobs})
	for _, e := range events {
		if err := stored.Hydrate(context.Background(), e.Body); err != nil {
			return err
		}
	}
	return nil
}

// Diff compares the whole state of two folds, because all answers and decisions of the server depend on
// this state. The fold `other` may lack unused tokens that have expired.
func (s State) Diff(other State, now time.Time) string {
	for id, t := range s.folded.Registry.Tokens {
		used := false
		for _, n := range s.folded.Registry.Nodes {
			used = used || n.Token == id
		}
		if other.folded.Registry.Tokens[id] == nil && !used && t.Expires.Before(now) {
			delete(s.folded.Registry.Tokens, id)
		}
	}
	// The list of nodes to look at again is not part of the state: a fold without this list looks at all nodes.
	s.folded.Converge.Needy(view)
	other.folded.Converge.Needy(view)
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	return cmp.Diff(s.folded, other.folded, all, cmpopts.EquateEmpty())
}

var view = converge.View{Has: func(tutti.NodeName) converge.Has { return converge.Has{} }}

// Look calls f with the version of the fold that readers get.
func (s *Server) Look(ctx context.Context, f func(State)) error {
	return s.core.Look(ctx, func(v explain.View) error {
		f(State{v.State})
		return nil
	})
}

// Reader returns a reader of a fold that does not change any more. Several calls of this reader may use
// the fold at the same time.
func (s State) Reader(of *Server) *explain.Reader {
	look := func(_ context.Context, f func(explain.View) error) error {
		return f(explain.View{State: s.folded, Now: time.Now(), Present: of.core.Presence, Space: of.core.Opts.Space, May: func(tutti.Verb, string) error { return nil }})
	}
	return of.core.ReaderOf(look)
}

// Seq returns the number of the last event in the fold.
func (s State) Seq() uint64 { return s.folded.Seq }

// Standings returns the need of each node, the reason, and the runs from which the need follows.
func (s State) Standings() map[tutti.NodeName]string {
	id := func(r *engine.Run) tutti.RunID {
		if r == nil {
			return "none"
		}
		return r.Run
	}
	out := map[tutti.NodeName]string{}
	for _, n := range s.folded.Members("") {
		last := s.folded.Engine.Last(n)
		standing := s.folded.Converge.Standing(n, s.folded.Has(n, ""))
		out[n] = fmt.Sprintf("needs %s (%s) by %s; claimed %s, applied %s, passed %s", standing.Need, standing.Why(), id(standing.Run), id(last.Claimed), id(last.Applied), id(last.Passed))
		for _, r := range last.Foreign {
			out[n] += ", foreign " + string(r.Run)
		}
	}
	return out
}

// HasTold adds bytes to the two sums of a node's foreign runs in this hour: the bytes in the log, and the bytes of
// the reports.
func (s *Server) HasTold(n tutti.NodeName, log, reports int) {
	s.core.Presence.Tells(n, time.Now(), log)
	s.core.Presence.MayKeepReport(n, time.Now(), reports)
}

// The following constants limit a node's messages about foreign runs within an hour.
const (
	MaxTold    = presence.MaxTold
	MaxReports = presence.MaxReports
)
