package stage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/chaos"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/lab"
)

// Chaos executes a plan on the fleet of a lab again and again. At the same time, the lab's
// hosts suffer faults. The seed determines the faults.
type Chaos struct {
	Fleet *LabFleet
	Plan  tutti.PlanName
	Seed  uint64
	For   time.Duration
	// If Turns is true, a second part follows after the faults: machines are replaced, cloned and
	// set back, and the server is restored.
	Turns bool
	Say   func(format string, args ...any)
}

// The constants limit three waits: for the fleet to settle after the faults, for one
// answer of the server, and for the next try.
const (
	settleDeadline = 3 * time.Minute
	answerDeadline = 10 * time.Second
	askAgainEvery  = 500 * time.Millisecond
)

// Run prints the schedule and executes it. Run always ends every fault. After the faults,
// Run executes the plan once more. Run also checks whether nodes that the server calls good really are good. Run
// returns the problems, one line each. An error means that Run could not determine the problems.
func (c Chaos) Run(ctx context.Context) ([]string, error) {
	faults := chaos.Schedule(c.Seed, c.hosts(), c.For)
	c.Say("%s", chaos.Describe(c.Seed, faults))
	before, err := c.remember(ctx)
	if err != nil {
		return nil, err
	}
	spells, err := c.disturb(ctx, faults)
	if err := errors.Join(err, c.healAll(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	all := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, settleDeadline, fmt.Errorf("the fleet did not recover within %s after the faults (seed %d)", settleDeadline, c.Seed))
	defer cancel()
	last, err := c.last(ctx)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	h, err := c.history(ctx, before)
	if err != nil {
		return nil, err
	}
	h.Spells = spells
	lost := 0
	for _, w := range h.Wanted {
		if !w.LostAt.IsZero() {
			lost++
		}
	}
	c.Say("seed %d: %d jobs, %d runs wanted, %d started, %d lost", c.Seed, len(h.Jobs), len(h.Wanted), len(h.Started), lost)
	found := chaos.Judge(h)
	if last.Verdict != tutti.VerdictSucceeded {
		found = append(found, fmt.Sprintf("without faults at the end, job %s %s: %s", last.Job, last.Verdict, last.Message))
	}
	wrong, err := c.falseGood(ctx)
	if found = append(found, wrong...); err != nil || !c.Turns {
		return found, err
	}
	wrong, err = c.turns(all)
	return append(found, wrong...), err
}

func (c Chaos) hosts() chaos.Fleet {
	f := chaos.Fleet{Server: c.Fleet.Server.Name}
	for _, h := range c.Fleet.Nodes {
		f.Nodes = append(f.Nodes, h.Name)
	}
	return f
}

// The method `disturb` executes the plan until the schedule is over. The method begins and ends each fault at the
// scheduled times. The method returns which hosts could not be reached, and when.
func (c Chaos) disturb(ctx context.Context, faults []chaos.Fault) ([]chaos.Spell, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var mu sync.Mutex
	var spells []chaos.Spell
	var wait sync.WaitGroup
	for _, f := range faults {
		wait.Go(func() {
			spell, err := c.befall(ctx, f, began)
			if err != nil {
				cancel(tutti.Wrap("", err, "%s", f))
			}
			if spell.Host != "" {
				mu.Lock()
				defer mu.Unlock()
				spells = append(spells, spell)
			}
		})
	}
	c.drive(ctx, began.Add(c.For))
	wait.Wait()
	return spells, context.Cause(ctx)
}

// The method `befall` begins and ends one fault at the scheduled times.
func (c Chaos) befall(ctx context.Context, f chaos.Fault, began time.Time) (chaos.Spell, error) {
	h, err := c.Fleet.Lab.Host(f.Host)
	if err != nil {
		return chaos.Spell{}, err
	}
	if !sleep(ctx, time.Until(began.Add(f.At))) {
		return chaos.Spell{}, nil
	}
	c.Say("%s", f)
	begin, end := c.deeds(h, f)
	if err := begin(ctx); err != nil {
		return chaos.Spell{}, err
	}
	from := time.Now()
	if !sleep(ctx, time.Until(began.Add(f.End()))) {
		return chaos.Spell{}, nil
	}
	to := time.Now()
	if f.For > 0 {
		if err := end(ctx); err != nil {
			return chaos.Spell{}, err
		}
		c.Say("%6.1fs  %s on %s is over", time.Since(began).Seconds(), f.Kind, f.Host)
	}
	switch f.Kind {
	case chaos.Cut:
		return chaos.Spell{Host: f.Host, From: from, To: to}, nil
	case chaos.Power: // the host was away until it had finished booting
		return chaos.Spell{Host: f.Host, From: from, To: time.Now()}, nil
	default:
		return chaos.Spell{}, nil
	}
}

// The method `deeds` returns the functions that begin and end a fault.
func (c Chaos) deeds(h *lab.Host, f chaos.Fault) (begin, end func(context.Context) error) {
	nothing := func(context.Context) error { return nil }
	switch f.Kind {
	case chaos.Cut:
		return h.Cut, h.Heal
	case chaos.Slow:
		return func(ctx context.Context) error { return h.Slow(ctx, lab.Slow{Delay: f.Delay, Loss: f.Loss}) }, h.Heal
	case chaos.Power:
		return h.Kill, h.Start
	case chaos.KillAgent:
		return signalUnit(h, "tutti-agent", "KILL"), nothing
	case chaos.KillServer:
		return signalUnit(h, "tutti-server", "KILL"), nothing
	case chaos.PauseServer:
		return signalUnit(h, "tutti-server", "STOP"), signalUnit(h, "tutti-server", "CONT")
	}
	return func(context.Context) error { return fmt.Errorf("unknown fault %q", f.Kind) }, nothing
}

// signalUnit sends a signal to the main process of a unit. If there is no process at the
// moment, signalUnit returns nil, because systemd is about to start the process.
func signalUnit(h *lab.Host, unit, signal string) func(context.Context) error {
	const script = `pid=$(systemctl show -p MainPID --value "$1"); [ "$pid" = 0 ] || kill -s "$2" "$pid"`
	return func(ctx context.Context) error {
		_, err := Output(ctx, h, nil, "sh", "-c", script, "sh", unit, signal)
		return err
	}
}

// healAll ends every fault that may still be active.
func (c Chaos) healAll(ctx context.Context) error {
	var errs []error
	for _, h := range c.Fleet.Lab.Hosts {
		errs = append(errs, h.Start(ctx), h.Heal(ctx))
	}
	return errors.Join(append(errs, signalUnit(c.Fleet.Server, "tutti-server", "CONT")(ctx))...)
}

// The method `drive` executes the plan again and again until the time is over.
func (c Chaos) drive(ctx context.Context, until time.Time) {
	for time.Now().Before(until) && ctx.Err() == nil {
		if _, err := c.execute(ctx, until); err != nil {
			sleep(ctx, askAgainEvery)
		}
	}
}

// The method `execute` starts the plan and watches the job until its verdict, or until the time is over. If the
// server does not answer, the server may still have begun a job. The final check also looks at jobs that this test
// does not know.
func (c Chaos) execute(ctx context.Context, until time.Time) (tutti.JobID, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	asking, answered := context.WithTimeout(ctx, answerDeadline)
	job, err := c.Fleet.Client.StartJob(asking, api.StartJob{Plan: c.Plan, Mode: tutti.ModeApply})
	answered()
	for err == nil && ctx.Err() == nil {
		werr := c.Fleet.Client.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(api.Watched) error { return nil })
		if werr == nil {
			return job, nil
		}
		sleep(ctx, askAgainEvery)
	}
	return job, errors.Join(err, ctx.Err())
}

// The function `sleep` waits for d. The function returns false if ctx ended earlier.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// OpenLabFleet opens a fleet that already runs on the hosts of a lab. The server's host
// is the host with the address that the connection names.
func OpenLabFleet(operator Operator, running *lab.Running, conn cli.Connection) (*LabFleet, error) {
	f := &LabFleet{operator: operator, Lab: running, Conn: conn}
	server, err := operator.ServerURL(conn)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	for _, h := range running.Hosts {
		if h.Address.String() == at.Hostname() {
			f.Server = h
			continue
		}
		f.Nodes = append(f.Nodes, h)
	}
	if f.Server == nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "no host of lab %q has the address of the server %s: give --lab, and the lab's --operator", running.Name, server)
	}
	f.Client, err = operator.Connect(conn)
	return f, err
}
