package denials

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
)

// A refused caller must not be able to fill the log, or to hide the attempts of others. So the number of entries is
// limited for each known caller, and for all strangers together. Attempts above a limit are only counted. At the
// end of a minute, each known caller gets one entry with its counts, and all strangers together get one.
const (
	maxDenialsOf = 30  // entries of one known caller in a minute
	maxDenials   = 300 // entries of all known callers in a minute; after that, each caller still gets its first entry
	// The first strangersAtOnce attempts of strangers get their own entries. After that the server only counts the
	// attempts. In each period of strangersEvery, one more attempt may get an entry.
	strangersAtOnce = 60
	strangersEvery  = 10 * time.Minute
	// maxWhat and maxReason limit the texts of an entry, in bytes. The JSON of a text may be twice as long.
	maxWhat   = 200
	maxReason = 1 << 10
)

// strangers is the name in an entry that counts more than one stranger.
const strangers = "strangers"

// Entry returns the entry of a refused attempt. The field `What` is usually the most important one. If the reason
// has the same text as `What`, Entry leaves the reason out.
func Entry(who, what string, cause error) *tutti.Denied {
	out := &tutti.Denied{Who: who, What: plain.Cut(what, maxWhat)}
	if reason := cause.Error(); reason != what {
		out.Reason = plain.Cut(reason, maxReason)
	}
	return out
}

// Minute contains the attempts of the present minute. The minute begins with the first attempt, and
// ends when Due returns its counts. The zero Minute has not begun.
type Minute struct {
	mu       sync.Mutex
	since    time.Time // when the minute began; zero if it has not begun
	known    map[string]*attempts
	recorded int // entries of known callers

	strangers attempts
	sources   counts    // attempts of strangers, by source
	room      int       // entries that strangers may still have
	roomAt    time.Time // when the field `room` was last updated; zero if never
}

// attempts are the attempts of one caller within a minute.
type attempts struct {
	recorded map[string]bool
	more     counts
}

// The method `note` gives an attempt its own entry if the argument `may` is true and there is no equal entry yet.
// In all other cases, `note` only counts the attempt.
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

// isKnown reports whether the identity of a caller is proven. All other callers are
// strangers, who can use as many names as they like.
func isKnown(who string) bool {
	kind, _, _ := strings.Cut(who, ":")
	return kind == "node" || kind == "operator" || kind == "token" || kind == "certificate"
}

// Admit reports whether an attempt gets its own entry. An attempt without its own entry is counted.
func (d *Minute) Admit(now time.Time, who, what string) bool {
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

func (d *Minute) admitStranger(now time.Time, who, what string) bool {
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

// Due returns the entries with the counts when the minute is over.
func (d *Minute) Due(now time.Time) []*tutti.Denied {
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
