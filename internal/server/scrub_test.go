package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// scrubNotes are past.Scrubs in memory.
type scrubNotes struct {
	mu   sync.Mutex
	last time.Time
	done []past.Scrub
}

func (n *scrubNotes) Last() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

func (n *scrubNotes) Done(s past.Scrub) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = s.At
	n.done = append(n.done, s)
	return nil
}

// The method `all` returns all recorded scrubs.
func (n *scrubNotes) all() []past.Scrub {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.done)
}

// TestScrub checks that the server reads all content by itself at an interval and reports missing content.
// The server repeats the report as long as content is missing (finding F24).
func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes := &scrubNotes{}
		p := startPast(t, func(o *server.Options) { o.Scrubs, o.ScrubEvery = notes, 4*time.Hour })
		p.reported(t, false)
		step := func(after time.Duration, scrubs int, damaged ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			done := notes.all()
			if len(done) != scrubs {
				t.Fatalf("%d scrubs, want %d", len(done), scrubs)
			}
			if scrubs == 0 {
				return
			}
			last := done[scrubs-1]
			if last.Blobs < 3 || last.Bytes == 0 || len(last.Damaged) != len(damaged) {
				t.Fatalf("found %+v, want %q", last, damaged)
			}
			for i, what := range damaged {
				if !strings.Contains(last.Damaged[i], what) {
					t.Errorf("found %q, want %q", last.Damaged[i], what)
				}
			}
		}
		step(59*time.Minute, 0) // there is no scrub directly after a start, because the server is busy then
		step(2*time.Minute, 1)
		code := tutti.DigestOf([]byte(servertest.CodeContent))
		if err := p.Blobs.Delete(t.Context(), code); err != nil {
			t.Fatal(err)
		}
		step(3*time.Hour, 1)
		step(time.Hour+time.Minute, 2, "a file of code: ")
		step(4*time.Hour+time.Minute, 3, "a file of code: ")
		if _, err := p.Blobs.Put(t.Context(), []byte(servertest.CodeContent)); err != nil {
			t.Fatal(err)
		}
		notes.mu.Lock()
		notes.last = time.Now().Add(3 * time.Hour) // a backup has read all content in the meantime
		notes.mu.Unlock()
		step(4*time.Hour, 3, "a file of code: ")
		step(3*time.Hour+2*time.Minute, 4)
	})
}

// TestNoScrub checks that there is no scrub if the interval is 0.
func TestNoScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes := &scrubNotes{}
		startPast(t, func(o *server.Options) { o.Scrubs = notes })
		time.Sleep(24 * time.Hour)
		if done := notes.all(); len(done) != 0 {
			t.Error(fmt.Sprint(done))
		}
	})
}
