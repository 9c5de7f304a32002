package outward

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/watch"
)

// Source is the log of the server.
type Source interface {
	// Place returns the position from which a reader continues, see operators.Ended.
	Place(ctx context.Context, after tutti.Position) (tutti.Position, error)
	// Read yields the ended runs with a report, and the facts of nodes, in the order of the log, and ends at the first
	// error of yield. It returns the sequence of the last event that it has read.
	Read(ctx context.Context, after uint64, yield func(past.Ended) error) (through uint64, err error)
	// Appended returns a channel that is closed when the log gets another event.
	Appended() <-chan struct{}
	// Report returns a report, or facts in gzip. It returns CodeNotFound if the server no longer keeps the content.
	Report(ctx context.Context, digest tutti.Digest) ([]byte, error)
}

// Options are the settings of a sender.
type Options struct {
	Dir      string // of the server
	Source   Source
	Producer string // the server's name
	Logger   *slog.Logger
	// Pause waits before another request. The default waits 1 s after the first failure, and up to 5 minutes later.
	Pause func(ctx context.Context, failures int)
	// Look is how often the sender looks for a request to send parked reports again. The default is 5 s.
	Look time.Duration
}

const (
	batch     = 256
	longPause = 5 * time.Minute
	lookEvery = 5 * time.Second
)

func pause(ctx context.Context, failures int) {
	wait := longPause
	if failures < 9 {
		wait = min(longPause, time.Second<<(failures-1))
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// Sender sends reports to one destination.
type Sender struct {
	Options
	to     Destination
	mu     sync.Mutex
	status Status
	parked []Parked // only the goroutine of Run uses it
	client *client
	tell   watch.Broadcast
}

// New reads what has happened for a destination.
func New(to Destination, opts Options) (*Sender, error) {
	if opts.Pause == nil {
		opts.Pause = pause
	}
	if opts.Look == 0 {
		opts.Look = lookEvery
	}
	s := &Sender{Options: opts, to: to, tell: watch.NewBroadcast()}
	if err := os.MkdirAll(filepath.Join(opts.Dir, stateDir), 0o700); err != nil {
		return nil, err
	}
	var err error
	s.status, s.parked, err = ReadStatus(opts.Dir, to.Name)
	return s, err
}

// Status returns what has happened so far.
func (s *Sender) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Changed returns a channel that is closed when the status may have changed.
func (s *Sender) Changed() <-chan struct{} { return s.tell.Wait() }

// Run sends reports until ctx ends.
func (s *Sender) Run(ctx context.Context) {
	defer s.stop()
	failures := 0
	for ctx.Err() == nil {
		before := s.Status().Cursor
		err := s.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.Status().Cursor != before {
			failures = 0
		}
		failures++
		s.failed(err)
		s.Pause(ctx, failures)
	}
}

// The method `run` sends reports until an error.
func (s *Sender) run(ctx context.Context) error {
	if err := s.place(ctx); err != nil {
		return err
	}
	for {
		if err := s.again(ctx); err != nil {
			return err
		}
		changed := s.Source.Appended()
		next, more, err := s.next(ctx)
		if err != nil {
			return err
		}
		for _, e := range next {
			if err := s.deliver(ctx, e); err != nil {
				return err
			}
		}
		if more {
			continue
		}
		select {
		case <-changed:
		case <-time.After(s.Look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// place moves the cursor if the log was restored, or if this is the first start.
func (s *Sender) place(ctx context.Context) error {
	was := s.Status().Cursor
	at, err := s.Source.Place(ctx, was)
	if err != nil || at == was {
		return err
	}
	if at.Seq < was.Seq {
		s.Logger.Warn("the log was restored: reports of runs that end from now on are sent; nodes may send results again that were sent before",
			"for", s.to.Name, "seq", at.Seq)
	}
	s.mu.Lock()
	if s.status.Cursor = at; at.Seq < was.Seq {
		s.status.Seen, s.status.Waiting = at.Seq, 0
	}
	s.mu.Unlock()
	return s.save()
}

// The method `wants` reports whether the destination gets the report of a run. If the server has forgotten the run, the
// report is lost, and it counts as dropped.
func (s *Sender) wants(e past.Ended) bool {
	return (e.Ordered || e.Node == "" || s.to.AgentRuns) && (e.Facts == "" || s.to.Facts)
}

// The method `next` returns the first runs after the cursor, and counts all that wait. Runs that waited before and are no
// longer in the log count as dropped.
func (s *Sender) next(ctx context.Context) (next []past.Ended, more bool, err error) {
	was, total, still := s.Status(), 0, 0
	seen := was.Seen
	through, err := s.Source.Read(ctx, was.Cursor.Seq, func(e past.Ended) error {
		if !s.wants(e) {
			return nil
		}
		if seen = max(seen, e.Seq); len(next) < batch {
			next = append(next, e)
		} else {
			more = true
		}
		if e.Facts != "" { // later facts replace them, so they neither wait nor get lost
			return nil
		}
		if total++; e.Seq <= was.Seen {
			still++
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	defer s.tell.Tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	if was.AgentRuns == s.to.AgentRuns {
		s.status.Dropped += max(0, was.Waiting-still)
	}
	s.status.Waiting, s.status.Seen, s.status.AgentRuns = total, seen, s.to.AgentRuns
	if len(next) == 0 { // the next read need not see these events again
		s.status.Cursor.Seq = max(was.Cursor.Seq, through)
	}
	return next, more, nil
}

// deliver sends one report. When deliver returns nil, the file says that the report is done.
func (s *Sender) deliver(ctx context.Context, e past.Ended) error {
	sent, parked := true, (*Parked)(nil)
	switch err := s.send(ctx, e); {
	case err == nil:
	case e.Facts != "" && isRefused(err):
		s.Logger.Error("facts were refused; the node's next facts are sent again", "for", s.to.Name, "node", e.Node, "error", reason(err.Error()))
		sent = false
	case tutti.CodeOf(err) == tutti.CodeNotFound:
		sent = false
	case isRefused(err):
		sent, parked = false, &Parked{Ended: e, Reason: reason(err.Error()), Since: time.Now().UTC()}
	default:
		return err
	}
	if parked != nil {
		s.Logger.Error("a report was refused and is parked; see: tutti server reports list", "for", s.to.Name, "run", e.Run, "node", e.Node, "error", parked.Reason)
		if err := s.park(*parked); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.status.Cursor.Seq = e.Seq
	switch {
	case e.Facts != "":
		if sent {
			s.status.Facts++
		}
		s.good(false)
	default:
		s.status.Waiting--
		if !sent && parked == nil {
			s.status.Dropped++
		}
		s.good(sent)
	}
	s.mu.Unlock()
	killpoint.Here("outward.answered", s.to.Name)
	return s.save()
}

// The method `good` notes that the destination has answered. The caller holds the mutex.
func (s *Sender) good(sent bool) {
	s.status.Parked = len(s.parked)
	if sent {
		s.status.Sent++
		s.status.SentAt = time.Now().UTC()
	}
	s.status.Error, s.status.Since = "", time.Time{}
}

func isRefused(err error) bool {
	var r refused
	return errors.As(err, &r) || tutti.CodeOf(err) == tutti.CodeDamaged
}

// The method `send` sends one report. CodeNotFound means that the server no longer has the report.
func (s *Sender) send(ctx context.Context, e past.Ended) error {
	if e.Node == "" {
		return tutti.Errorf(tutti.CodeNotFound, "the run is no longer kept")
	}
	content := e.Report
	if e.Facts != "" {
		content = e.Facts
	}
	raw, err := s.Source.Report(ctx, content)
	if err != nil {
		return err
	}
	if s.client == nil {
		if s.client, err = newClient(s.to); err != nil {
			return tutti.Wrap(tutti.CodeUnavailable, err, "destination %s", s.to.Name)
		}
	}
	killpoint.Here("outward.sending", s.to.Name)
	return s.client.send(ctx, e, raw, s.Producer)
}

// The method `park` stores a refused report before the cursor passes it.
func (s *Sender) park(p Parked) error {
	s.parked = slices.DeleteFunc(s.parked, func(old Parked) bool { return old.Seq == p.Seq })
	s.parked = append(s.parked, p)
	if over := len(s.parked) - maxParked; over > 0 {
		s.parked = slices.Clone(s.parked[over:])
		s.mu.Lock()
		s.status.Dropped += over
		s.mu.Unlock()
	}
	return writeJSON(file(s.Dir, s.to.Name, ".parked.json"), s.parked)
}

// The method `again` sends the parked reports if somebody has asked for this.
func (s *Sender) again(ctx context.Context) error {
	path, through := file(s.Dir, s.to.Name, ".retry"), uint64(0)
	if err := readJSON(path, &through); err != nil || through == 0 {
		return err
	}
	for _, p := range slices.Clone(s.parked) {
		if p.Seq > through {
			continue
		}
		err := s.send(ctx, p.Ended)
		switch {
		case isRefused(err):
			p.Reason = reason(err.Error())
			if err := s.park(p); err != nil {
				return err
			}
			continue
		case err != nil && tutti.CodeOf(err) != tutti.CodeNotFound:
			return err
		}
		s.parked = slices.DeleteFunc(s.parked, func(old Parked) bool { return old.Seq == p.Seq })
		s.mu.Lock()
		if err != nil {
			s.status.Dropped++
		}
		s.good(err == nil)
		s.mu.Unlock()
		if err := errors.Join(writeJSON(file(s.Dir, s.to.Name, ".parked.json"), s.parked), s.save()); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

// failed notes an error. The next request uses a new connection, and reads keys and token again.
func (s *Sender) failed(err error) {
	s.forget()
	text := reason(err.Error())
	s.mu.Lock()
	same := s.status.Error == text
	if s.status.Error = text; s.status.Since.IsZero() {
		s.status.Since = time.Now().UTC()
	}
	s.mu.Unlock()
	if !same {
		s.Logger.Error("reports wait; the server tries again, and the fleet does not wait", "for", s.to.Name, "error", text)
	}
	if err := s.save(); err != nil {
		s.Logger.Error("the state of a destination was not written", "for", s.to.Name, "error", err)
	}
}

// The method `stop` writes what was counted since the last report.
func (s *Sender) stop() {
	s.forget()
	if err := s.save(); err != nil {
		s.Logger.Error("the state of a destination was not written", "for", s.to.Name, "error", err)
	}
}

func (s *Sender) forget() {
	if s.client != nil {
		s.client.close()
		s.client = nil
	}
}

func (s *Sender) save() error {
	defer s.tell.Tell()
	return writeJSON(file(s.Dir, s.to.Name, ".json"), s.Status())
}
