package past

import (
	"context"
	"sync"

	"github.com/tutti-project/tutti"
)

// keptLinks is how many of the last events have their link in memory. Each node claims every half minute, and a claim
// names an event. If this event is one of the last ones, the server does not have to read the disk.
const keptLinks = 8192

// links has the links of the last events, by sequence.
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
		if e.Link != "" { // the events of a snapshot have no link
			at := &l.last[e.Seq%keptLinks]
			at.seq, at.link = e.Seq, e.Link
		}
	}
}

// The method `of` looks up the link of an event. It returns an empty digest if the link is not in memory.
func (l *links) of(seq uint64) tutti.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.last[seq%keptLinks]; at.seq == seq {
		return at.link
	}
	return ""
}

// lookupsAtOnce limits how many lookups of older events run at the same time, for all callers together. The
// limit is needed because any caller can cause a lookup with a short message.
const lookupsAtOnce = 2

// Note stores the links of events in memory.
func (p *Past) Note(events ...tutti.Event) { p.links.note(events...) }

// Link returns the link of one of the last events. Link returns an empty digest if the link is not in memory.
func (p *Past) Link(seq uint64) tutti.Digest { return p.links.of(seq) }

// noLink stands for the link of an event that the log does not have. It differs from the link of every event. So a
// caller who has seen an event with this sequence notices that the log has lost it.
const noLink tutti.Digest = "none"

// LinkOfOld reads the link of one event from disk. LinkOfOld returns an empty digest if a snapshot
// has replaced the event.
func (p *Past) LinkOfOld(ctx context.Context, seq uint64) (tutti.Digest, error) {
	select {
	case p.lookups <- struct{}{}:
		defer func() { <-p.lookups }()
	case <-ctx.Done():
		return "", tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the lookups of other callers")
	}
	link, err := p.opts.Log.LinkAt(ctx, seq)
	switch {
	case tutti.CodeOf(err) != tutti.CodeNotFound:
		return link, err
	case seq <= p.Through():
		return "", nil
	}
	return noLink, nil
}
