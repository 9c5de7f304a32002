package server

import (
	"context"
	"sync"

	"github.com/tutti-project/tutti"
)

// keptLinks is of how many of the last events the links are in memory: whoever has seen one of
// them is answered without the disk. Nodes claim every half minute.
const keptLinks = 8192

// links are the links of the last events, by sequence.
type links struct {
	mu   sync.Mutex
	last [keptLinks]struct {
		seq  uint64
		link tutti.Digest
	}
}

func (l *links) note(events ...tutti.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if e.Link != "" { // a snapshot's events have none
			at := &l.last[e.Seq%keptLinks]
			at.seq, at.link = e.Seq, e.Link
		}
	}
}

// of returns the link of an event, empty if it is not in memory.
func (l *links) of(seq uint64) tutti.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.last[seq%keptLinks]; at.seq == seq {
		return at.link
	}
	return ""
}

// Position is how far the server is, the zero one before it serves. The event that it names is
// on disk.
func (s *Server) Position() tutti.Position {
	if at := s.at.Load(); at != nil {
		return *at
	}
	return tutti.Position{}
}

// lookupsAtOnce is how many events that are in memory no more are looked up at once, for all who name one. Anybody who may call
// can name them, in a message of some bytes.
const lookupsAtOnce = 2

// Behind refuses whoever has seen this server further than it is, or on another log
// (ADR 0018). While nobody serves it says nothing.
func (s *Server) Behind(ctx context.Context, seen tutti.Position) error {
	here := s.Position()
	if here.Epoch.Number == 0 || seen.Epoch.Number == 0 {
		return nil
	}
	link := s.links.of(seen.Seq)
	if link == "" && seen.Epoch == here.Epoch && seen.Seq > 0 && seen.Seq < here.Seq {
		var err error
		if link, err = s.linkOfOld(ctx, seen.Seq); err != nil {
			return err
		}
	}
	return here.Behind(seen, link)
}

// noLink is no event's: the log has none at a sequence that somebody has seen.
const noLink tutti.Digest = "none"

// linkOfOld looks up the link of one event that is on disk, empty if it was let go: the snapshot stands for it.
func (s *Server) linkOfOld(ctx context.Context, seq uint64) (tutti.Digest, error) {
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return "", tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for others whose last seen event is looked up")
	}
	link, err := s.opts.Log.LinkAt(ctx, seq)
	switch {
	case tutti.CodeOf(err) != tutti.CodeNotFound:
		return link, err
	case seq <= (past{s}).Through():
		return "", nil
	}
	return noLink, nil
}

// arrived notes that all events so far are on disk.
func (w *writer) arrived(events ...tutti.Event) {
	w.links.note(events...)
	at := tutti.Position{Epoch: w.state.Engine.Epoch, Seq: w.state.Seq}
	at.Link = w.links.of(at.Seq)
	w.at.Store(&at)
}
