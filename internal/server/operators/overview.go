package operators

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/board"
	"github.com/tutti-project/tutti/internal/explain"
)

const (
	// frameBytes limits the views of one frame.
	frameBytes = 256 << 10
	// lookEvery is how often a viewer looks whether something is new. The tables are not computed more often, either.
	lookEvery = 100 * time.Millisecond
	// costShare limits the CPU that tables need: a table is computed again after this many times the time that it took.
	costShare = 4
	// stillEvery is how often a table is computed although the log has no new event, because the connections of nodes may
	// have changed.
	stillEvery = time.Second
	// beatEvery is the longest time between two frames.
	beatEvery = 5 * time.Second
)

// overviews lets operators follow the whole fleet (ADR 0042).
type overviews struct {
	handler
	boot   string    // a cursor of another start of the server is not valid
	tables [2]*views // without the texts of nodes, and with them
}

func newOverviews(h handler) overviews {
	return overviews{handler: h, boot: rand.Text(), tables: [2]*views{{table: board.New()}, {table: board.New(), reads: true}}}
}

// The type `views` is the table that all viewers with the same verb follow.
type views struct {
	reads bool // with texts of nodes

	mu    sync.Mutex
	table *board.Table
	seq   uint64        // of the version from which the table was computed
	now   time.Time     // when the version was read; zero if there is no table yet
	cost  time.Duration // of the computation
}

// WatchFleet implements api.Overviews.
func (o overviews) WatchFleet(ctx context.Context, in api.WatchFleet, yield func(api.FleetFrame) error) error {
	for _, kind := range in.Want {
		if !slices.Contains(api.ViewKinds, kind) {
			return tutti.Errorf(tutti.CodeInvalid, "want: no kind of views %.40q; there are: %s", kind, strings.Join(api.ViewKinds, ", "))
		}
	}
	wants := func(key string) bool {
		kind, _, _ := strings.Cut(key, "/")
		return len(in.Want) == 0 || slices.Contains(in.Want, kind)
	}
	cursor, sent, first := in.After, time.Time{}, true
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return streamEnded(context.Cause(ctx))
		case <-timer.C:
		}
		t, err := o.fresh(ctx)
		switch {
		case ctx.Err() != nil:
			return streamEnded(context.Cause(ctx))
		case err != nil:
			return err
		}
		frame := o.frame(t, cursor, wants)
		if first || len(frame.Views) > 0 || len(frame.Gone) > 0 || frame.Reset || time.Since(sent) >= beatEvery {
			if err := yield(frame); err != nil {
				return err
			}
			sent, first = time.Now(), false
		}
		cursor = frame.Cursor
		if frame.Whole {
			timer.Reset(lookEvery)
		} else {
			timer.Reset(0)
		}
	}
}

// streamEnded returns why a stream ended. For a revoked operator, the cause is the refusal. A cause without a code is the end
// of the server or of the connection.
func streamEnded(cause error) error {
	if tutti.CodeOf(cause) != tutti.CodeInternal {
		return cause
	}
	return tutti.Wrap(tutti.CodeUnavailable, cause, "the stream of the fleet has ended; watch again")
}

// The method `fresh` returns the table for a caller, and computes it again if it is old. The error says why the caller may
// not look.
func (o overviews) fresh(ctx context.Context) (*views, error) {
	var t *views
	err := o.Look(ctx, func(v explain.View) error {
		if err := v.May(tutti.VerbView, ""); err != nil {
			return err
		}
		t = o.tables[0]
		if v.May(tutti.VerbRead, "") == nil {
			t = o.tables[1]
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if age := v.Now.Sub(t.now); !t.now.IsZero() && v.Seq >= t.seq {
			if age >= 0 && (age < lookEvery || age < costShare*t.cost) || v.Seq == t.seq && age < stillEvery {
				return nil
			}
		}
		if v.Seq < t.seq { // another viewer has read a later version
			return nil
		}
		began := time.Now()
		rows, err := v.Overview(t.reads)
		if err != nil {
			return err
		}
		t.table.Set(rows)
		t.seq, t.now, t.cost = v.Seq, v.Now, time.Since(began)
		return nil
	})
	return t, err
}

// The method `frame` returns what is new in a table after a cursor.
func (o overviews) frame(t *views, cursor string, wants func(key string) bool) api.FleetFrame {
	t.mu.Lock()
	defer t.mu.Unlock()
	after, known := o.stamp(t, cursor)
	rows, now, reset := t.table.Since(after, wants, frameBytes)
	out := api.FleetFrame{Seq: t.seq, At: t.now, Reset: reset || !known, Whole: now == t.table.Stamp(), Cursor: o.cursor(t, now)}
	for _, r := range rows {
		if r.View == nil {
			out.Gone = append(out.Gone, r.Key)
		} else {
			out.Views = append(out.Views, api.ViewItem{Key: r.Key, View: r.View})
		}
	}
	return out
}

// The method `cursor` returns the text of a stamp in a table.
func (o overviews) cursor(t *views, stamp board.Stamp) string {
	return fmt.Sprintf("%s-%t-%d", o.boot, t.reads, stamp)
}

// The method `stamp` returns the stamp of a cursor. It reports false if the cursor is not one of this table.
func (o overviews) stamp(t *views, cursor string) (board.Stamp, bool) {
	digits, ours := strings.CutPrefix(cursor, fmt.Sprintf("%s-%t-", o.boot, t.reads))
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ours || err != nil {
		return 0, false
	}
	return board.Stamp(n), true
}
