package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
)

// Whoever is refused must not be able to fill the log, or to hide what others try. So
// entries are bounded for each one who is known, and for all strangers together. What is
// beyond a bound is counted, and a minute's counts are one entry of whoever they are of.
const (
	maxDenialsOf = 30  // entries in a minute of one who is known
	maxDenials   = 300 // of all of them; each still has his first one
	// strangersAtOnce is how many strangers have an entry of their own before they only count;
	// each strangersEvery there is room for one more.
	strangersAtOnce = 60
	strangersEvery  = 10 * time.Minute
	// maxWhat and maxReason bound the texts of an entry, in bytes; as JSON they have twice as many.
	maxWhat   = 200
	maxReason = 1 << 10
)

// strangers is who tried what strangers did, in an entry that counts more than one of them.
const strangers = "strangers"

// deny records an attempt without a grant, or counts it, and returns its error.
func (tx *tx) deny(who, what string, err error) error {
	if tx.looks { // it is the writer that records it
		tx.records = true
		return err
	}
	if d := denial(who, what, err); tx.server.denials.admit(tx.now, d.Who, d.What) {
		tx.emit(actorServer, d)
	}
	return err
}

// denial is the entry of an attempt. Most is in what was tried; a reason that says the same is left out.
func denial(who, what string, cause error) *tutti.Denied {
	out := &tutti.Denied{Who: who, What: plain.Cut(what, maxWhat)}
	if reason := cause.Error(); reason != what {
		out.Reason = plain.Cut(reason, maxReason)
	}
	return out
}

// Denied records what was refused before it came to the writer, or counts it: who is
// `address:IP`, `key:KEY` or `operator:NAME`. It waits until an entry is on disk. What is
// counted does not cost the writer anything.
func (s *Server) Denied(ctx context.Context, who, what string, cause error) {
	if d := denial(who, what, cause); s.denials.admit(time.Now(), d.Who, d.What) {
		_ = s.do(context.WithoutCancel(ctx), func(tx *tx) error {
			tx.emit(actorServer, d)
			return nil
		})
	}
}

// Refused is Denied of what the bus refused on a node's behalf.
func (s *Server) Refused(ctx context.Context, key tutti.NodeKey, what string) {
	who := "key:" + string(key)
	if node := s.presence.Named(key); node != "" {
		who = tutti.ActorNode(node)
	}
	s.Denied(ctx, who, what, tutti.Errorf(tutti.CodeRefused, "%s", what))
}

// denials are the attempts of the minute that goes on. It begins with the first one, and ends
// when the writer takes what was counted.
type denials struct {
	mu       sync.Mutex
	since    time.Time // zero: there was none
	known    map[string]*attempts
	recorded int // of those who are known

	strangers attempts
	sources   counts    // of what strangers tried
	room      int       // for strangers' own entries
	roomAt    time.Time // when room was counted; zero: never
}

// attempts are what one has tried within a minute.
type attempts struct {
	recorded map[string]bool
	more     counts
}

// note records an attempt as one of its own if it may be and there is none like it, else it
// counts it.
func (a *attempts) note(key, what string, may bool) bool {
	if !may || a.recorded[key] {
		a.more.add(what)
		return false
	}
	if a.recorded == nil {
		a.recorded = map[string]bool{}
	}
	a.recorded[key] = true
	return true
}

// isKnown tells those who have proved who they are from strangers, who can call themselves
// by as many names as they like.
func isKnown(who string) bool {
	kind, _, _ := strings.Cut(who, ":")
	return kind == "node" || kind == "operator" || kind == "token"
}

// admit reports whether an attempt is to have an entry of its own. It counts it otherwise.
func (d *denials) admit(now time.Time, who, what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		d.since, d.known = now, map[string]*attempts{}
	}
	if !isKnown(who) {
		return d.admitStranger(now, who, what)
	}
	a := d.known[who]
	if a == nil {
		a = &attempts{}
		d.known[who] = a
	}
	n := len(a.recorded)
	if !a.note(what, what, n < maxDenialsOf && (n == 0 || d.recorded < maxDenials)) {
		return false
	}
	d.recorded++
	return true
}

func (d *denials) admitStranger(now time.Time, who, what string) bool {
	if d.roomAt.IsZero() {
		d.room, d.roomAt = strangersAtOnce, now
	}
	if more := int(now.Sub(d.roomAt) / strangersEvery); more > 0 {
		d.room, d.roomAt = min(d.room+more, strangersAtOnce), now
	}
	if d.strangers.note(who+"\x00"+what, what, d.room > 0) {
		d.room--
		return true
	}
	d.sources.add(sourceOf(who))
	return false
}

// due returns the entries of what was counted, when the minute is over.
func (d *denials) due(now time.Time) []*tutti.Denied {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() || now.Sub(d.since) <= time.Minute {
		return nil
	}
	var out []*tutti.Denied
	for _, who := range sorted(d.known) {
		if more := d.known[who].more; more.total > 0 {
			out = append(out, &tutti.Denied{Who: who, What: more.String(), Reason: fmt.Sprintf("%d times more within a minute", more.total)})
		}
	}
	if more := d.strangers.more; more.total > 0 {
		who, by := strangers, d.sources.String()
		if len(d.sources.of) == 1 {
			who = by
		}
		out = append(out, &tutti.Denied{Who: who, What: more.String(), Reason: fmt.Sprintf("%d times more within a minute, by %s", more.total, by)})
	}
	d.since, d.known, d.recorded, d.strangers, d.sources = time.Time{}, nil, 0, attempts{}, counts{}
	return out
}
