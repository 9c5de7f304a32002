package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// Switch is Puppet's file that disables Puppet.
type Switch interface {
	// Hold disables Puppet. If Puppet is already disabled, Hold changes nothing and returns
	// fs.ErrExist.
	Hold(message string) error
	// Unhold enables Puppet only if a Hold with this message has disabled it.
	Unhold(message string) error
	// Standing reports whether Puppet is enabled, disabled or busy. The report's field Ours is true if
	// Hold has disabled Puppet with this message.
	Standing(message string) (tutti.LeaseReport, error)
}

// leaseNote is what the agent knows about the job that holds its node. The agent writes the note to
// disk before it disables Puppet, and removes the note after it has enabled Puppet. After any crash,
// the next agent therefore finds what an exclusive job has disabled.
type leaseNote struct {
	Job     tutti.JobID   `json:"job"`
	Message string        `json:"message"`
	Length  time.Duration `json:"length"`
	Expires time.Time     `json:"expires"` // by the node's clock
}

const (
	// LeaseFile is a file in the agent's directory with a note about the job that holds the node.
	LeaseFile = "lease.json"
	// leaseLook is how often the agent checks whether its node is still held.
	leaseLook = time.Second
)

// leaseholder holds the node as long as the server wants, but not longer than the lease. Only one
// goroutine uses the leaseholder.
type leaseholder struct {
	*Agent
	note  *leaseNote
	until time.Time         // end of the lease, by the monotonic clock
	renew time.Time         // when the agent asks the server again
	said  tutti.LeaseReport // the last report
}

// The method `leases` serves exclusive jobs until ctx ends. If the node is held at that time, it
// stays held until the next agent starts. The next agent first computes how long the lease still
// lasts.
func (a *Agent) leases(ctx context.Context) {
	if a.opts.Switch == nil {
		return
	}
	l := &leaseholder{Agent: a}
	l.load()
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := "" // the last error; if an error repeats each second, the agent logs it only once
	for {
		rung := false
		select {
		case <-ctx.Done():
			return
		case <-a.lease:
			rung = true
		case <-timer.C:
		}
		err := l.round(ctx, rung)
		if text := errorText(err); err != nil && ctx.Err() == nil && !away(err) && text != said {
			a.opts.Logger.Error("the lease of an exclusive job could not be handled", "error", err)
			said = text
		}
		if l.note != nil {
			timer.Reset(leaseLook)
		}
	}
}

// The method `load` takes over the lease of an earlier agent. The method computes the remaining
// time of the lease by the node's clock, which somebody may have changed. The remaining time is
// therefore limited to one full lease.
func (l *leaseholder) load() {
	note, err := readSealed[leaseNote](l.leaseFile())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.setLeaseTrouble(tutti.Wrap(tutti.CodeDamaged, err, "the job for which Puppet was disabled here is unknown; if Puppet is disabled, run `puppet agent --enable`, and remove the file"))
		return
	}
	left := time.Until(note.Expires)
	if left > note.Length {
		left = note.Length
		note.Expires = time.Now().Add(left).UTC()
		if err := writeSealed(l.leaseFile(), note); err != nil {
			l.opts.Logger.Error("a lease could not be noted", "error", err)
		}
	}
	l.note, l.until = &note, time.Now().Add(left)
}

func (a *Agent) leaseFile() string { return filepath.Join(a.opts.Dir, LeaseFile) }

// The method `round` looks at the node, reports any change, and does what the server wants. The
// method repeats these steps until nothing is left to do.
func (l *leaseholder) round(ctx context.Context, rung bool) error {
	for {
		if err := l.expire(); err != nil {
			return err
		}
		report, err := l.stand()
		if err != nil {
			return err
		}
		if !rung && (l.note == nil || report == l.said && time.Now().Before(l.renew)) {
			return nil
		}
		sent := time.Now()
		order, err := l.report(ctx, report)
		if err != nil {
			return err
		}
		l.said, l.renew = report, sent.Add(order.Length/3)
		if rung, err = l.obey(order, report, sent); err != nil || !rung {
			return err
		}
	}
}

// The method `report` sends the report to the server. The method waits at most until the end of the
// lease, because the agent must not miss this end.
func (l *leaseholder) report(ctx context.Context, report tutti.LeaseReport) (tutti.LeaseOrder, error) {
	if l.note != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, l.until, tutti.Errorf(tutti.CodeUnavailable, "the lease has ended"))
		defer cancel()
	}
	order, err := call[tutti.LeaseOrder](ctx, l.Agent, wire.OpLease, report)
	if err == nil {
		err = order.Validate()
	}
	return order, err
}

// The method `stand` reports the state of the node. If a run of the job has Puppet's lock, the node
// does not count as busy. The agent recognizes such a run by its directory, also after a restart.
func (l *leaseholder) stand() (tutti.LeaseReport, error) {
	before := l.goesOn()
	out, err := l.opts.Switch.Standing(l.message())
	if err != nil && l.note == nil { // without a note, the agent does not hold the node
		return tutti.LeaseReport{Message: "not known, " + err.Error()}, nil
	}
	if err != nil {
		return out, err
	}
	if l.note != nil {
		out.Job = l.note.Job
	}
	out.Ours = out.Ours && l.note != nil
	if out.Busy == "" {
		return out, nil
	}
	if run := cmp.Or(before, l.goesOn()); run != nil {
		out.Busy = "local run " + string(run.Run)
		if run.Job != "" {
			out.Busy = fmt.Sprintf("run %s of job %s", run.Run, run.Job)
		}
		if run.Job == out.Job {
			out.Busy = ""
		}
	}
	return out, nil
}

// goesOn returns the order of the Tutti run that is going on: its Puppet has started on this node,
// and the run has no result yet. The method returns nil if no run is going on.
func (a *Agent) goesOn() *tutti.Order {
	dirs, err := a.runDirs()
	if err != nil {
		return nil // without the list of directories, the agent does not know whose Puppet is running
	}
	for _, dir := range dirs {
		if hasFile(dir, resultFile) || hasFile(dir, sentFile) {
			continue
		}
		if spec, err := a.opts.Runner.Spec(dir); err == nil {
			return &spec.Order
		}
	}
	return nil
}

func (l *leaseholder) message() string {
	if l.note == nil {
		return ""
	}
	return l.note.Message
}

// The method `obey` does what the server wants. The method returns true if there is something new
// to report.
func (l *leaseholder) obey(order tutti.LeaseOrder, report tutti.LeaseReport, sent time.Time) (bool, error) {
	mine := l.note != nil && l.note.Job == order.Job
	switch {
	case order.Want == tutti.LeaseHold && (mine || l.note == nil):
		if !report.Ours && !report.Enabled {
			return false, nil // the server already knows that somebody else has disabled Puppet
		}
		return !report.Ours, l.hold(order, report, sent)
	case order.Want == tutti.LeaseRelease && mine:
		return true, l.release()
	case order.Want == tutti.LeaseKeep && mine:
		l.opts.Logger.Info("Puppet stays disabled", "job", order.Job)
		return true, l.forget()
	}
	return false, nil
}

// The method `hold` notes the lease, then disables Puppet if Puppet is not disabled yet.
func (l *leaseholder) hold(order tutti.LeaseOrder, report tutti.LeaseReport, sent time.Time) error {
	note := leaseNote{Job: order.Job, Message: order.Message, Length: order.Length, Expires: sent.Add(order.Length).UTC()}
	if report.Ours {
		note.Message = l.note.Message // the message in Puppet's file
	}
	if err := writeSealed(l.leaseFile(), note); err != nil {
		return err
	}
	l.note, l.until = &note, sent.Add(order.Length)
	killpoint.Here("agent.lease-noted")
	if report.Ours {
		return nil
	}
	l.said = tutti.LeaseReport{}
	err := l.opts.Switch.Hold(note.Message)
	killpoint.Here("agent.lease-held")
	if errors.Is(err, fs.ErrExist) {
		return nil // someone else disabled Puppet first; the next report has their message
	}
	if err == nil {
		l.opts.Logger.Info("Puppet is disabled for an exclusive job", "job", note.Job, "for", note.Length)
	}
	return err
}

// The method `release` enables Puppet if the method `hold` has disabled Puppet.
func (l *leaseholder) release() error {
	if err := l.opts.Switch.Unhold(l.note.Message); err != nil {
		l.setLeaseTrouble(tutti.Wrap(tutti.CodeUnavailable, err, "job %s no longer holds the node, and Puppet cannot be enabled", l.note.Job))
		return err
	}
	l.setLeaseTrouble(nil)
	killpoint.Here("agent.lease-released")
	l.opts.Logger.Info("an exclusive job has released the node", "job", l.note.Job)
	return l.forget()
}

func (l *leaseholder) forget() error {
	if err := os.Remove(l.leaseFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.note = nil
	return durable.SyncDir(l.opts.Dir)
}

// The method `expire` ends a lease that was not renewed in time.
func (l *leaseholder) expire() error {
	if l.note == nil || time.Now().Before(l.until) {
		return nil
	}
	l.opts.Logger.Warn("the lease of an exclusive job has ended, because it was not renewed", "job", l.note.Job, "for", l.note.Length)
	return l.release()
}

// heldBy returns the job that holds the node according to the agent's note. The method
// returns an empty string if no job holds the node.
func (a *Agent) heldBy() tutti.JobID { return HeldBy(a.opts.Dir) }

// mayBegin checks whether a run may begin. If the run belongs to an exclusive job that no longer holds
// the node, the method returns the reason for a refusal. If the run must wait, for example because
// another job holds the node, the method returns an error.
func (a *Agent) mayBegin(order tutti.Order) (refused string, err error) {
	note, err := readSealed[leaseNote](a.leaseFile())
	held := err == nil
	switch {
	case !order.Exclusive && held:
		return "", tutti.Errorf(tutti.CodeUnavailable, "the node is held by job %s; run %s of job %s waits for its end", note.Job, order.Run, order.Job)
	case !order.Exclusive:
		return "", nil
	case a.opts.Switch == nil || !held || note.Job != order.Job:
		return "the node is not held by the job any more", nil
	}
	stands, err := a.opts.Switch.Standing(note.Message)
	switch {
	case err != nil:
		return "", err
	case stands.Enabled:
		return "the node is not held by the job any more: enabled by somebody else", nil
	case !stands.Ours:
		return "disabled by somebody else: " + stands.Message, nil
	}
	return "", nil
}
