//go:build killpoints

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/powerfs"
)

// powerNode is the node of the agent db as a machine: its disk, and everything
// that runs on it, which is in a PID namespace of its own and ends together.
type powerNode struct {
	fleet  *killFleet
	disk   *powerfs.FS
	left   func(*powerfs.FS) powerfs.Image // what a loss of power leaves
	passed string                          // file: the points that the first agent passed
	losses int
}

// powerCase is a loss of power in the place of a step of the disk.
type powerCase struct {
	step int
	name string
	left func(*powerfs.FS) powerfs.Image
}

// TestAnAgentSurvivesLossOfPower switches a node off in the place of each fsync
// and each rename that its disk sees from the start of its agent to the end of a
// run, and on again. (In between, the disk stays as it is and the agent has gone
// less far.)
func TestAnAgentSurvivesLossOfPower(t *testing.T) {
	tpl := newTemplate(t, killSite)
	want, steps := powerCase{}.try(t, tpl)
	if want.err != nil || want.outcome.Verdict != tutti.VerdictSucceeded {
		t.Fatalf("without a loss of power: %+v", want)
	}
	var cases []powerCase
	for _, s := range steps {
		if s.Op == "fsync" || s.Op == "syncfs" || s.Op == "rename" {
			name := fmt.Sprintf("%d %s %s", s.N, s.Op, filepath.Base(s.Path))
			cases = append(cases,
				powerCase{s.N, name, (*powerfs.FS).Durable},
				powerCase{s.N, name + ", all but data written", (*powerfs.FS).Zeros})
		}
	}
	got := make([]powerResult, len(cases))
	var working sync.WaitGroup
	next := make(chan int)
	for range 6 {
		working.Go(func() {
			for i := range next {
				got[i], _ = cases[i].try(t, tpl)
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	working.Wait()
	t.Logf("%d steps, %d losses of power", len(steps), len(cases))
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) { got[i].check(t, want.outcome) })
	}
}

// powerResult is how a job ended whose node was switched off.
type powerResult struct {
	err      error
	outcome  outcome
	starts   map[string]int // of Puppet, by run
	atCut    map[string]bool
	switched bool
	said     string // by the agent
}

// check is the invariants: no second start, and nothing forgotten that the agent
// had on its disk.
func (r powerResult) check(t *testing.T, want outcome) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the agent said:\n%s", r.said)
		}
	}()
	if r.err != nil {
		t.Fatal(r.err)
	}
	for run, n := range r.starts {
		if n > 1 {
			t.Errorf("run %s was started %d times", run, n)
		}
	}
	first := r.outcome.Runs[0].Outcome
	switch {
	case first == tutti.Changed:
		if diff := cmp.Diff(want, r.outcome); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	case first == tutti.Failed && strings.HasPrefix(r.outcome.Runs[0].Failed, "the report cannot be read") && !r.atCut["durable.done result.json"]:
		// Puppet had ended, and its report was not on disk.
	case first != tutti.Interrupted || r.outcome.Verdict != tutti.VerdictFailed:
		t.Errorf("the run ended as %s, the job as %s: %s", first, r.outcome.Verdict, r.outcome.Runs[0].Failed)
	case r.atCut["durable.done result.json"]:
		t.Errorf("the run was changed, that was on the agent's disk, and it ended as %s", first)
	case !r.atCut["durable.synced run.json"]:
		t.Errorf("the run ended as %s, and its marker was never written", first)
	}
}

// try runs the job with a loss of power (in no step: without), then another one:
// the agent must not be stuck. It returns the steps of the first job.
func (c powerCase) try(t *testing.T, tpl template) (out powerResult, steps []powerfs.Step) {
	f := tpl.copy(t)
	defer f.clear(t)
	defer func() {
		raw, _ := os.ReadFile(filepath.Join(f.dir, dbProcess+".out"))
		out.said = string(raw)
	}()
	n := &powerNode{fleet: f, left: c.left, passed: filepath.Join(f.dir, "passed")}
	starts := filepath.Join(f.dir, "started")
	if out.err = countStarts(f.dir, starts); out.err != nil {
		return out, nil
	}
	var image powerfs.Image
	if image, out.err = powerfs.Load(filepath.Join(f.dir, dbProcess)); out.err != nil {
		return out, nil
	}
	n.disk = powerfs.New(image)
	if c.step > 0 {
		n.disk.CutAt(c.step)
	} else {
		n.disk.Watch(func(s powerfs.Step) { steps = append(steps, powerfs.Step{N: s.N, Op: s.Op, Path: s.Path}) })
	}
	f.begin(t, nil, serverProcess, webProcess)
	f.group.Go(n.live)
	ctx, cancel := context.WithTimeout(t.Context(), killDeadline)
	defer cancel()
	if out.outcome, out.err = f.outcome(ctx); out.err != nil {
		return out, nil
	}
	out.outcome.Starts = nil // the file of the fake Puppet was lost, too
	if out.err = n.sent(ctx); out.err != nil {
		return out, nil
	}
	if c.step == 0 {
		n.disk.Watch(nil)
	}
	ctx, cancel = context.WithTimeoutCause(t.Context(), killDeadline, errors.New("the agent is stuck: the next job does not end"))
	defer cancel()
	if _, out.err = f.runJob(ctx, 2); out.err != nil {
		return out, nil
	}
	out.starts, out.atCut, out.switched = map[string]int{}, map[string]bool{}, n.losses > 0
	raw, _ := os.ReadFile(starts)
	for run := range strings.Lines(string(raw)) {
		out.starts[strings.TrimSpace(run)]++
	}
	raw, _ = os.ReadFile(n.passed)
	for point := range strings.Lines(string(raw)) {
		out.atCut[strings.TrimSpace(point)] = true
	}
	return out, steps
}

// sent waits until the agent has noted that the server has the result.
func (n *powerNode) sent(ctx context.Context) error {
	pattern := filepath.Join(n.fleet.dir, dbProcess, "runs", "*", "result.json")
	return again(ctx, func() error {
		results, _ := filepath.Glob(pattern)
		for _, path := range results {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "sent")); err != nil {
				return tutti.Wrap(tutti.CodeUnavailable, err, "the agent waits")
			}
		}
		return nil
	})
}

// countStarts has each start of Puppet noted beside the disk that is lost.
func countStarts(dir, to string) error {
	ruby := filepath.Join(dir, "root/usr/bin/ruby")
	raw, err := os.ReadFile(ruby)
	if err != nil {
		return err
	}
	text := strings.Replace(string(raw), "\n", fmt.Sprintf("\n[ \"$(id -u)\" ] && basename \"$2\" >>%s\n", to), 1)
	return os.WriteFile(ruby, []byte(text), 0o755)
}

// live keeps the node up, and switches it on again after a loss of power.
func (n *powerNode) live() error {
	for {
		again, err := n.boot()
		if err != nil || !again {
			return err
		}
		n.losses++
		n.disk = powerfs.New(n.left(n.disk))
	}
}

// machine runs an agent in namespaces of its own. It lets go of the disks of other
// machines, which it has copied: their loss would wait for its end.
const machine = `mount -t proc proc /proc
for m in $(awk '$3=="fuse.powerfs"{print $2}' /proc/mounts); do [ $m = $PWD/db ] || umount -l $m; done
exec tutti agent --dir db --root root`

// boot lets the agent run until the fleet ends or the power is lost.
func (n *powerNode) boot() (lost bool, err error) {
	unmount, err := n.disk.Mount(filepath.Join(n.fleet.dir, dbProcess))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	out, err := os.OpenFile(filepath.Join(n.fleet.dir, dbProcess+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer out.Close()
	cmd := exec.Command("sh", "-c", machine)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.fleet.dir, out, out
	cmd.Env = os.Environ()
	if n.losses == 0 {
		cmd.Env = append(cmd.Env, killpoint.To+"="+n.passed)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if n.fleet.ctx.Err() != nil {
			return false, nil
		}
		return false, fmt.Errorf("the agent ended by itself: %w", err)
	case <-n.disk.Lost():
		lost = true
	case <-n.fleet.ctx.Done():
	}
	// With the first process of a namespace all others end.
	if err := cmd.Process.Kill(); err != nil {
		return false, err
	}
	n.disk.Fail()
	select {
	case err := <-ended:
		if err == nil {
			return false, errors.New("the machine was not killed")
		}
		return lost, nil
	case <-time.After(killDeadline):
		return false, errors.New("the machine does not end")
	}
}
