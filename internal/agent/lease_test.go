package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// lockFile is an in-memory form of Puppet's file that disables Puppet.
type lockFile struct {
	mu      sync.Mutex
	message string // empty if Puppet is enabled
	busy    string
	hang    chan struct{} // if set, the next change does nothing, and returns only after `hang` is closed
	made    chan struct{} // closed when a change waits for `hang`
}

func (f *lockFile) change(from, to string) error {
	f.mu.Lock()
	hang := f.hang
	f.hang = nil
	f.mu.Unlock()
	if hang != nil {
		close(f.made)
		<-hang
		return tutti.Errorf(tutti.CodeUnavailable, "killed")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.message == from {
		f.message = to
		return nil
	}
	return fs.ErrExist
}

func (f *lockFile) Hold(message string) error { return f.change("", message) }

func (f *lockFile) Unhold(message string) error {
	if err := f.change(message, ""); err != nil && tutti.CodeOf(err) == tutti.CodeUnavailable {
		return err
	}
	return nil
}

func (f *lockFile) Standing(message string) (tutti.LeaseReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return tutti.LeaseReport{Ours: message != "" && f.message == message, Enabled: f.message == "", Message: f.message, Busy: f.busy}, nil
}

// stopNext makes the next change hang, as if the agent were killed before the
// change.
func (f *lockFile) stopNext() (kill func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hang := make(chan struct{})
	f.hang, f.made = hang, make(chan struct{})
	return func() { close(hang) }
}

func (f *lockFile) set(message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.message = message
}

func (f *lockFile) setBusy(with string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = with
}

func (f *lockFile) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.message
}

// leaseServer is an agent.Bus to a server that has one exclusive job and no runs.
type leaseServer struct {
	mu      sync.Mutex
	want    tutti.LeaseWant
	away    bool
	reports []tutti.LeaseReport
	ring    func(string, []byte)
}

const (
	leaseLength = 3 * time.Minute
	leaseWords  = "Tutti job deploy-1: kernel"
)

func (s *leaseServer) Call(_ context.Context, op string, payload []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "away")
	}
	if op != wire.OpLease {
		return []byte("{}"), nil
	}
	var in tutti.LeaseReport
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, err
	}
	s.reports = append(s.reports, in)
	out := tutti.LeaseOrder{Job: "deploy-1", Want: s.want}
	switch {
	case s.want == tutti.LeaseHold:
		out.Length, out.Message = leaseLength, leaseWords
	case in.Job == "":
		out = tutti.LeaseOrder{}
	}
	return json.Marshal(out)
}

func (s *leaseServer) Send(string, []byte) error { return nil }

func (s *leaseServer) OnRing(f func(string, []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = f
	return nil
}

func (s *leaseServer) OnConnect(func()) {}
func (s *leaseServer) SetTicket(string) {}

// The method `wants` changes what the server wants and rings the agent.
func (s *leaseServer) wants(want tutti.LeaseWant) {
	s.mu.Lock()
	s.want = want
	ring := s.ring
	s.mu.Unlock()
	ring(wire.RingLease, nil)
	synctest.Wait()
}

func (s *leaseServer) goes(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *leaseServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reports)
}

// holder is an agent that serves exclusive jobs. The holder runs in a synctest bubble.
type holder struct {
	t      *testing.T
	dir    string
	server *leaseServer
	file   *lockFile
	kill   func()
}

func newHolder(t *testing.T) *holder {
	h := &holder{t: t, dir: t.TempDir(), server: &leaseServer{}, file: &lockFile{}}
	h.start()
	t.Cleanup(func() { h.kill() })
	return h
}

// The method `start` starts an agent with the state that the previous agent has left.
func (h *holder) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	a := agent.New(agent.Options{
		Dir: h.dir, Node: "db-01", Bus: h.server, Runner: newRuby(h.t, nil), Signers: (&servertest.Identity{}).Signers(), Switch: h.file, Logger: slog.New(slog.NewTextHandler(h.t.Output(), nil)),
	})
	go func() { ended <- a.Run(ctx) }()
	h.kill = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			h.t.Errorf("the agent ended with %v", err)
		}
	})
	synctest.Wait()
}

func (h *holder) noted() bool {
	_, err := os.Stat(filepath.Join(h.dir, "lease.json"))
	return err == nil
}

// The method `want` fails the test if Puppet's file has another message. The method also fails
// the test if the agent has no note of a job although `noted` is true, or has a note although
// `noted` is false.
func (h *holder) want(reason, message string, noted bool) {
	h.t.Helper()
	synctest.Wait()
	if got := h.file.get(); got != message || h.noted() != noted {
		h.t.Errorf("%s: Puppet's file says %q, note %t; want %q, %t", reason, got, h.noted(), message, noted)
	}
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestALeaseEndsByItself: the lease does not end early, and it ends without a message
// from the server. As long as the job lives, the agent renews the lease with few
// messages.
func TestALeaseEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t)
		h.server.wants(tutti.LeaseHold)
		h.want("held", leaseWords, true)
		pass(time.Hour)
		h.want("the job lives", leaseWords, true)
		if n := h.server.count(); n < 60 || n > 70 {
			t.Errorf("%d reports in an hour, want one for each third of the lease", n)
		}
		h.server.goes(true)
		pass(leaseLength * 2 / 3)
		h.want("the server is away", leaseWords, true)
		h.server.goes(false)
		pass(leaseLength * 9 / 10)
		h.want("and was back in time", leaseWords, true)
		h.server.goes(true)
		pass(leaseLength + time.Second)
		h.want("the server is gone", "", false)
	})
}

// TestAnAgentThatWasGoneKeepsTheLease: the lease that an ended agent left behind
// ends on time. Even if the clock was changed, the lease lasts at most one full
// length after the next start.
func TestAnAgentThatWasGoneKeepsTheLease(t *testing.T) {
	for _, tc := range []struct {
		reason string
		gone   time.Duration
		clock  time.Duration // how far the clock was ahead when the agent wrote the note
		left   time.Duration // how long the lease lasts after the start
	}{
		{"a moment", time.Second, 0, leaseLength - time.Second},
		{"too long: its first act is to end it", leaseLength + time.Second, 0, 0},
		{"the clock was ahead by a year", time.Second, 365 * 24 * time.Hour, leaseLength},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t)
				h.server.wants(tutti.LeaseHold)
				h.kill()
				h.want("its agent is gone", leaseWords, true)
				h.server.goes(true)
				h.ahead(tc.clock)
				pass(tc.gone)
				h.start()
				for range 3 { // a restart must not extend the lease
					if tc.left > 3*time.Second {
						pass(time.Second)
						h.want("before its end", leaseWords, true)
						h.kill()
						h.start()
						tc.left -= time.Second
					}
				}
				pass(tc.left + time.Second)
				h.want("after its end", "", false)
			})
		})
	}
}

// The method `ahead` changes the note as if the agent had written it while the clock was ahead.
func (h *holder) ahead(by time.Duration) {
	h.t.Helper()
	if by == 0 {
		return
	}
	path := filepath.Join(h.dir, "lease.json")
	note, err := agent.ReadSealed[map[string]any](path)
	if err != nil {
		h.t.Fatal(err)
	}
	note["expires"] = time.Now().Add(by)
	if err := agent.WriteSealed(path, note); err != nil {
		h.t.Fatal(err)
	}
}

// TestAnAgentThatIsKilledLeavesNothingDisabled: wherever an agent is killed, the
// next agent finishes its work. To hold the node, an agent first writes the note, then the file. To
// release the node, an agent first removes the file, then the note.
func TestAnAgentThatIsKilledLeavesNothingDisabled(t *testing.T) {
	for _, tc := range []struct {
		reason string
		before func(h *holder) // prepares the holder
		want   tutti.LeaseWant // what the server wants after `before`; the test kills the agent just before the next change of Puppet's file
		file   string          // Puppet's file at the time of the kill
		then   tutti.LeaseWant // what the server wants from the next agent
		after  string
	}{
		{"before the file is made", func(*holder) {}, tutti.LeaseHold, "", tutti.LeaseHold, leaseWords},
		{"before the file is made, and the job has ended", func(*holder) {}, tutti.LeaseHold, "", tutti.LeaseRelease, ""},
		{"before the file is removed", func(h *holder) { h.server.wants(tutti.LeaseHold) }, tutti.LeaseRelease, leaseWords, tutti.LeaseRelease, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t)
				tc.before(h)
				kill := h.file.stopNext()
				h.server.wants(tc.want)
				h.want("killed", tc.file, true)
				go h.kill()
				synctest.Wait()
				kill()
				synctest.Wait()
				h.server.mu.Lock()
				h.server.want = tc.then
				h.server.mu.Unlock()
				h.start()
				pass(2 * time.Second)
				h.want("the next one", tc.after, tc.after != "")
			})
		})
	}
}

// TestWhatSomebodyElseDoesIsToldAndStays: the agent reports the change to the
// server within two seconds, and does not overwrite it.
func TestWhatSomebodyElseDoesIsToldAndStays(t *testing.T) {
	for _, tc := range []struct {
		reason, file string
		told         tutti.LeaseReport
	}{
		{"enabled", "", tutti.LeaseReport{Job: "deploy-1", Enabled: true}},
		{"disabled otherwise", "new disk", tutti.LeaseReport{Job: "deploy-1", Message: "new disk"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHolder(t)
				h.server.wants(tutti.LeaseHold)
				h.server.mu.Lock()
				h.server.want = tutti.LeaseRelease // the real server, too, wants the release when it gets the agent's report
				h.server.mu.Unlock()
				n := h.server.count()
				h.file.set(tc.file)
				pass(2 * time.Second)
				if diff := cmp.Diff(tc.told, h.server.reports[n]); diff != "" {
					t.Errorf("told: -want +got\n%s", diff)
				}
				h.want("after", tc.file, false)
			})
		})
	}
	t.Run("kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHolder(t)
			h.server.wants(tutti.LeaseHold)
			h.server.wants(tutti.LeaseKeep)
			pass(2 * leaseLength)
			h.want("left disabled, as asked", leaseWords, false)
		})
	})
	t.Run("a disabled node is not held", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHolder(t)
			h.file.set("new disk")
			h.server.wants(tutti.LeaseHold)
			h.want("refused", "new disk", false)
		})
	})
}

const exclusivePlan = `
fleet: test
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}}
grants: [{to: db, write: [db/**]}]
plans:
  deploy:
    exclusive: {reason: kernel}
    steps: [{run: db}, {run: db}]
  other:
    steps: [{run: db}]
`

// exclusiveLab is a fleet with a node that an exclusive job can hold.
func exclusiveLab(t *testing.T, script func(file *lockFile, p *puppet) tutti.Result) (*lab, *lockFile) {
	t.Helper()
	file := &lockFile{}
	l := newLab(t, func(p *puppet) tutti.Result { return script(file, p) })
	l.fleet.Push(exclusivePlan)
	l.start(func(o *agent.Options) { o.Switch, o.Local, o.Allow = file, &ownPuppet{}, allowAll })
	l.line.settle()
	return l, file
}

// TestAnExclusiveJobFromEndToEnd: the job's runs execute while Puppet is disabled
// on the node. Runs of other jobs wait for the job's end. Afterwards the node is as
// before.
func TestAnExclusiveJobFromEndToEnd(t *testing.T) {
	during := make(chan string, 100)
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l, file := exclusiveLab(t, func(file *lockFile, p *puppet) tutti.Result {
		during <- file.get()
		once.Do(func() { close(begun); <-release })
		return applies(p)
	})
	job := l.job()
	<-begun
	other := l.fleet.Start("other", tutti.ModeApply)
	if got := l.fleet.Job(other).Message; got != "db-01 is held by job deploy-1" {
		t.Errorf("the other job says %q", got)
	}
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteEnable}); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "held by job deploy-1") {
		t.Errorf("enable: %+v", a)
	}
	close(release)
	l.end(job)
	l.end(other)
	close(during)
	var held []bool
	for message := range during {
		held = append(held, strings.Contains(message, "Tutti job deploy-1 by operator:ada: kernel; until the job ends, at most 5m0s"))
	}
	if diff := cmp.Diff([]bool{true, true, false}, held); diff != "" {
		t.Errorf("held during the runs: -want +got\n%s", diff)
	}
	for _, id := range []tutti.JobID{job, other} {
		if j := l.fleet.Job(id); j.Verdict != tutti.VerdictSucceeded {
			t.Errorf("%s: %s %s", id, j.Verdict, j.Message)
		}
	}
	if file.get() != "" {
		t.Errorf("disabled after the end: %q", file.get())
	}
}

// TestAnAgentThatIsStartedAnewKnowsItsRun: a restarted agent finds a running Puppet
// and knows that it belongs to the job. The test starts the agent many times, because
// the order of its first checks is random.
func TestAnAgentThatIsStartedAnewKnowsItsRun(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l, file := exclusiveLab(t, func(file *lockFile, p *puppet) tutti.Result {
		file.setBusy("pid 7")
		once.Do(func() { close(begun); <-release })
		file.setBusy("")
		return applies(p)
	})
	job := l.job()
	<-begun
	for range 8 {
		reports := l.line.count(wire.OpLease)
		l.start(func(o *agent.Options) { o.Switch, o.Local, o.Allow = file, &ownPuppet{}, allowAll })
		l.line.until(wire.OpLease, reports+1)
	}
	close(release)
	l.end(job)
	if j := l.fleet.Job(job); j.Verdict != tutti.VerdictSucceeded {
		t.Errorf("%s: %s %s", job, j.Verdict, j.Message)
	}
}

// TestNoRunOfAJobThatLostItsNode: somebody else disables Puppet during the job. The agent
// does not enable Puppet again, and its message names the reason.
func TestNoRunOfAJobThatLostItsNode(t *testing.T) {
	l, file := exclusiveLab(t, func(file *lockFile, p *puppet) tutti.Result {
		file.set("new disk")
		return applies(p)
	})
	job := l.job()
	l.end(job)
	if j := l.fleet.Job(job); j.Verdict != tutti.VerdictFailed || !strings.Contains(j.Message, "db-01: disabled by somebody else: new disk") {
		t.Errorf("%s %s", j.Verdict, j.Message)
	}
	if file.get() != "new disk" || l.ruby.started() != 1 {
		t.Errorf("file %q, %d Puppets; want theirs, and no second one", file.get(), l.ruby.started())
	}
}
