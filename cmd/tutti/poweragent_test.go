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

// powerNode plays the machine of the node db. It has a disk. All its processes are in one PID
// namespace and end together.
type powerNode struct {
	fleet  *killFleet
	disk   *powerfs.FS
	left   func(*powerfs.FS) powerfs.Image // what the disk still has after a loss of power
	passed string                          // the file in which the first agent notes its kill points
	losses int
}

// powerCase is a loss of power at a certain step of the disk.
type powerCase struct {
	step int
	name string
	left func(*powerfs.FS) powerfs.Image
}

// TestAnAgentSurvivesLossOfPower switches a node off at each fsync and each rename on its disk. The
// test covers the time from the start of the node's agent to the end of a run. The test then
// switches the node on again. (Between these steps the content of the disk does not change, and
// only the agent's progress differs.)
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

// powerResult is the result of a job whose node was switched off.
type powerResult struct {
	err      error
	outcome  outcome
	starts   map[string]int // how often Puppet was started, by run
	atCut    map[string]bool
	switched bool
	said     string // the output of the agent
}

// The method `check` checks the invariants. No run may start twice, and the agent must not forget
// anything that was on its disk.
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
		// In this case Puppet had ended, and its report was not on disk.
	case first != tutti.Interrupted || r.outcome.Verdict != tutti.VerdictFailed:
		t.Errorf("the run ended as %s, the job as %s: %s", first, r.outcome.Verdict, r.outcome.Runs[0].Failed)
	case r.atCut["durable.done result.json"]:
		t.Errorf("the run was changed, that was on the agent's disk, and it ended as %s", first)
	case !r.atCut["durable.synced run.json"]:
		t.Errorf("the run ended as %s, and its marker was never written", first)
	}
}

// The method `try` runs the job with a loss of power. Then it runs a second job, to check that the
// agent still works. With a zero powerCase the first job has no loss of power. The method returns
// the disk's steps during the first job.
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
	out.outcome.Starts = nil // the loss of power also removed the file in which the fake Puppet counts
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

// The method `sent` waits until the agent has recorded that the server has the result.
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

// countStarts makes the fake Puppet record each start in a file outside the lost disk.
func countStarts(dir, to string) error {
	ruby := filepath.Join(dir, "root/usr/bin/ruby")
	raw, err := os.ReadFile(ruby)
	if err != nil {
		return err
	}
	text := strings.Replace(string(raw), "\n", fmt.Sprintf("\n[ \"$(id -u)\" ] && basename \"$2\" >>%s\n", to), 1)
	return os.WriteFile(ruby, []byte(text), 0o755)
}

// The method `live` keeps the node running, and switches it on again after a loss of power.
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

// The script `machine` runs an agent in its own namespaces. It unmounts the disks of other machines
// in its copied mount namespace. If these disks stayed mounted, they would stay in use after a loss
// of power, until this machine ends.
const machine = `mount -t proc proc /proc
for m in $(awk '$3=="fuse.powerfs"{print $2}' /proc/mounts); do [ $m = $PWD/db ] || umount -l $m; done
exec tutti agent --dir db --root root`

// The method `boot` runs the agent until the fleet ends or the power is lost.
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
	// When the first process of a namespace ends, all other processes in it end, too.
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
