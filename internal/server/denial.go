package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
)

// maxDenials bounds how many attempts are recorded in a minute: whoever is
// refused must not be able to fill the log.
const maxDenials = 300

// deny records an attempt without a grant, the same one once a minute, and
// returns its error.
func (tx *tx) deny(who, what string, err error) error {
	what = plain.Words(what)
	if tx.server.denials.admit(tx.now, who, what) {
		tx.emit(actorServer, &tutti.Denied{Who: who, What: what, Reason: plain.Words(err.Error())})
	}
	return err
}

// denials are the attempts that were recorded since a minute began.
type denials struct {
	since  time.Time
	seen   map[string]bool
	counts map[bool]int // of nodes, and of everybody else
}

// admit reports whether an attempt is to be recorded.
func (d *denials) admit(now time.Time, who, what string) bool {
	if now.Sub(d.since) > time.Minute {
		*d = denials{since: now, seen: map[string]bool{}, counts: map[bool]int{}}
	}
	key := who + "\x00" + what
	if d.seen[key] || d.counts[isNode(who)] >= maxDenials {
		return false
	}
	d.seen[key] = true
	d.counts[isNode(who)]++
	return true
}

// isNode tells those who proved a node's key from everybody else: strangers who
// knock must not use up the room for what nodes try.
func isNode(who string) bool { return strings.HasPrefix(who, actorNode("")) }

// knocks keeps strangers from keeping the writer busy: what would not be recorded
// does not get as far, and is counted.
type knocks struct {
	mu sync.Mutex
	denials
	more map[knock]int // not recorded since the minute began
}

type knock struct{ who, what string }

// Denied records what was refused before it came to the writer: who is
// `address:IP`, `key:KEY` or `operator:NAME`. It waits until that is on disk. What
// comes again within a minute is counted, and recorded as a number.
func (s *Server) Denied(ctx context.Context, who, what string, cause error) {
	k := knock{who, plain.Words(what)}
	s.knocks.mu.Lock()
	admitted := s.knocks.admit(time.Now(), k.who, k.what)
	if !admitted {
		if _, known := s.knocks.more[k]; !known && len(s.knocks.more) >= maxDenials {
			k = knock{"address:others", "what too many others tried"}
		}
		if s.knocks.more == nil {
			s.knocks.more = map[knock]int{}
		}
		s.knocks.more[k]++
	}
	s.knocks.mu.Unlock()
	if admitted {
		_ = s.do(context.WithoutCancel(ctx), func(tx *tx) error { return tx.deny(k.who, k.what, cause) })
	}
}

// due returns what was counted in a minute that is over.
func (k *knocks) due(now time.Time) []*tutti.Denied {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.more) == 0 || now.Sub(k.since) <= time.Minute {
		return nil
	}
	var out []*tutti.Denied
	for key, n := range k.more {
		out = append(out, &tutti.Denied{Who: key.who, What: key.what, Reason: fmt.Sprintf("%d times more within a minute", n)})
	}
	k.more = nil
	slices.SortFunc(out, func(a, b *tutti.Denied) int { return cmp.Or(cmp.Compare(a.Who, b.Who), cmp.Compare(a.What, b.What)) })
	return out
}

// Refused records what the bus refused on a node's behalf. It waits until that is
// on disk.
func (s *Server) Refused(ctx context.Context, key tutti.NodeKey, what string) {
	_ = s.do(ctx, func(tx *tx) error {
		who := "key:" + string(key)
		if n := tx.Registry.ByKey(key); n != nil {
			who = actorNode(n.Node)
		}
		return tx.deny(who, what, tutti.Errorf(tutti.CodeRefused, "%s", what))
	})
}
