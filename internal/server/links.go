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

// Behind refuses whoever has seen this server further than it is, or on another log
// (ADR 0018). While nobody serves it says nothing.
func (s *Server) Behind(ctx context.Context, seen tutti.Position) error {
	here := s.Position()
	if here.Epoch.Number == 0 || seen.Epoch.Number == 0 {
		return nil
	}
	link := s.links.of(seen.Seq)
	if link == "" && seen.Epoch == here.Epoch && seen.Seq > 0 && seen.Seq < here.Seq {
		for e, err := range s.opts.Log.Read(ctx, seen.Seq-1) {
			if err != nil {
				break // it was let go: the snapshot stands for it
			}
			link = e.Link // of another event, if that one is not there
			break
		}
	}
	return here.Behind(seen, link)
}

// arrived notes that all events so far are on disk.
func (w *writer) arrived(events ...tutti.Event) {
	w.links.note(events...)
	at := tutti.Position{Epoch: w.state.Engine.Epoch, Seq: w.state.Seq}
	at.Link = w.links.of(at.Seq)
	w.at.Store(&at)
}
