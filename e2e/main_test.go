//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// The tests share this fleet. Each test pushes its own code.
var fleet *stage.LabFleet

const binary = "../bin/tutti"

// The variable `machine` is the machine on which the tests run.
var machine = lab.Machine{Log: os.Stderr}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if err := lab.Check(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	if _, err := os.Stat(binary); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: no bin/tutti; run: make build")
		return 1
	}
	flag.Parse() // for the deadline
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if limit := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); limit > 2*beforePanic {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit-beforePanic, fmt.Errorf("not done within -timeout %s", limit))
		defer cancel()
	}
	code, err := withFleet(ctx, func() int {
		done := make(chan int, 1)
		go func() { done <- m.Run() }()
		select {
		case code := <-done:
			return code
		case <-ctx.Done(): // only the end of this process can interrupt m.Run
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) //nolint:errcheck // shown to people
			fmt.Fprintln(os.Stderr, "e2e: ended:", context.Cause(ctx))
			return 1
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return code
}

// beforePanic is the time for removing the labs before the testing package ends the process.
const beforePanic = 20 * time.Second

// labName returns the name of a lab of these tests. E2E_SUFFIX separates the labs of two test runs
// on one machine.
func labName(name string) string { return name + os.Getenv("E2E_SUFFIX") }

// exampleLab returns the name of the lab of an example.
func exampleLab(example string) string { return labName("e2e-" + example) }

// siteLab returns the name of the lab with a Puppet Server.
func siteLab() string { return labName("e2e-site") }

// swiftSiteLab returns the name of the lab with the Swift example and a Puppet Server.
func swiftSiteLab() string { return labName("e2e-swiftsite") }

// readSpec reads a lab file. E2E_RELEASE replaces the Debian release of its hosts: bookworm has
// Puppet 7, trixie Puppet 8.
func readSpec(path string) (lab.Spec, error) {
	spec, err := lab.ReadSpec(path)
	if release := os.Getenv("E2E_RELEASE"); release != "" {
		spec.Release = release
	}
	return spec, err
}

// mustReadSpec is like readSpec, but fails the test after an error.
func mustReadSpec(t *testing.T, path string) lab.Spec {
	t.Helper()
	spec, err := readSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// bootLab boots a lab for one test, and removes it at the end of the test.
func bootLab(t *testing.T, spec lab.Spec) *lab.Running {
	t.Helper()
	running, err := machine.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Down(context.Background(), spec.Name); err != nil {
			t.Error(err)
		}
	})
	return running
}

// startFleet creates a fleet on the hosts of a lab. With E2E_WARM=0 all runs are cold. E2E_WARM=0
// is for measuring the benefit of warm runs. With E2E_WARM=0 the tests of warm runs and of the
// agent's unit fail.
func startFleet(ctx context.Context, running *lab.Running, serverHost, dir string) (*stage.LabFleet, error) {
	return startFleetWith(ctx, running, serverHost, binary, dir)
}

// startFleetWith is like startFleet, but the hosts get another program.
func startFleetWith(ctx context.Context, running *lab.Running, serverHost, program, dir string) (*stage.LabFleet, error) {
	f, err := app.StartLabFleet(ctx, running, serverHost, program, dir)
	if err != nil || os.Getenv("E2E_WARM") != "0" {
		return f, err
	}
	for _, h := range f.Nodes {
		if err := f.RunCold(ctx, h); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// withFleet creates the shared fleet and calls f. In any case withFleet removes all labs of these
// tests afterwards. withFleet returns an error if a lab has left something.
func withFleet(ctx context.Context, f func() int) (code int, err error) {
	spec, err := readSpec("lab.yaml")
	if err != nil {
		return 1, err
	}
	spec.Name = labName(spec.Name)
	dir, err := os.MkdirTemp("", "tutti-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := filepath.Abs(binary)
	if err != nil {
		return 1, err
	}
	machine.Program = []string{program}
	down := func() error {
		var errs []error
		for _, name := range []string{spec.Name, exampleLab("compute"), exampleLab("swift"), exampleLab("web"), siteLab(), swiftSiteLab(), leadLab(), releaseLab(), truthLab(), chaosLab()} {
			if err := machine.Down(context.WithoutCancel(ctx), name); err != nil && tutti.CodeOf(err) != tutti.CodeNotFound {
				errs = append(errs, err)
			}
			errs = append(errs, noTraces(name))
		}
		return errors.Join(errs...)
	}
	if err := down(); err != nil { // removes labs of an earlier test run that was killed
		return 1, err
	}
	defer func() { err = errors.Join(err, down()) }()
	if os.Getenv("E2E_COLD") != "" { // cold starts have their own fleets
		return f(), nil
	}
	running, err := machine.Up(ctx, spec)
	if err != nil {
		return 1, err
	}
	if len(traces(spec.Name)) == 0 {
		return 1, errors.New("a lab that is up leaves no trace: the search for leftovers sees nothing")
	}
	if fleet, err = startFleet(ctx, running, "tutti", dir); err != nil {
		return 1, err
	}
	defer buildAhead(ctx)()
	return f(), nil
}

// ownLabs lists the lab files of tests that have their own lab, in the order in which the tests
// need them.
var ownLabs = []struct{ test, file string }{
	{"TestConvergeSwift", "../examples/swift/lab.yaml"},
	{"TestCompute", "../examples/compute/lab.yaml"},
	{"TestPuppetServer", "puppetserver.yaml"},
	{"TestWeb", "../examples/web/lab.yaml"},
}

// buildAhead builds the bases of the tests in the background. The processors are free for this, because the first tests
// mostly wait. If a test needs a base that is not ready, the test waits for the base or builds it. The returned
// function `stop` ends the work in the background.
func buildAhead(ctx context.Context) (stop func()) {
	wanted := regexp.MustCompile(flag.Lookup("test.run").Value.String()) // go test has already compiled this expression
	if os.Getenv("E2E_RELEASE") != "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Pdeathsig depends on the thread, so the goroutine stays on one thread
		for _, own := range ownLabs {
			if !wanted.MatchString(own.test) {
				continue
			}
			cmd := exec.CommandContext(ctx, "nice", "-n", "19", binary, "lab", "base", own.file)
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			if err := cmd.Run(); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "e2e: ahead of its test,", own.file, err) // the test will report this error again
			}
		}
	}()
	return func() { cancel(); <-done }
}

// The function `host` returns a host of the shared fleet.
func host(t *testing.T, name string) *lab.Host {
	t.Helper()
	h, err := fleet.Lab.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The function `sh` runs a shell script on a host and returns the output of the script.
func sh(t *testing.T, h *lab.Host, script string) string {
	t.Helper()
	out, err := stage.Output(t.Context(), h, nil, "sh", "-euc", script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return string(bytes.TrimSpace(out))
}

// The function `eventually` repeats the check until the condition holds. The function is for
// effects on a host outside of any job.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, time.Minute, what, holds)
}

// The function `within` is like the function `eventually`, with another time limit.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", limit, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// The function `push` sends a fleet file and an environment. The environment has a site manifest,
// and further files by their path in the environment.
func push(t *testing.T, fleetFile, site string, more ...map[string]string) {
	t.Helper()
	if err := fleet.Push(t.Context(), write(t, fleetFile, site, more...)); err != nil {
		t.Fatal(err)
	}
}

// The function `write` writes the files for the function `push` into a directory, and returns the
// directory.
func write(t *testing.T, fleetFile, site string, more ...map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"tutti.yaml": fleetFile, "code/manifests/site.pp": site}
	for _, m := range more {
		for name, content := range m {
			files["code/"+name] = content
		}
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A `job` is a job of Tutti that has begun, with the events that the test has watched and folded.
type job struct {
	*engine.Job
	id tutti.JobID
	t  *testing.T
	f  *stage.LabFleet
}

func start(t *testing.T, f *stage.LabFleet, plan tutti.PlanName, mode tutti.Mode) *job {
	t.Helper()
	id, err := f.Client.StartJob(t.Context(), api.StartJob{Plan: plan, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	return &job{id: id, t: t, f: f}
}

// The constant `patience` is the time limit for one job, on a machine with other load.
const patience = 10 * time.Minute

var errSeen = errors.New("seen")

// The method `until` watches the job. It returns after the first event for which the condition
// holds, or at the end of the job. If the server restarts, the method waits for the server.
func (j *job) until(holds func(api.Watched) bool) *job {
	j.t.Helper()
	ctx, cancel := context.WithTimeoutCause(j.t.Context(), patience, fmt.Errorf("job %s: nothing of what was waited for within %s", j.id, patience))
	defer cancel()
	for {
		state := engine.NewState()
		err := j.f.Client.WatchJob(ctx, api.WatchJob{Job: j.id, Follow: true}, func(w api.Watched) error {
			if w.Event != nil {
				state.Apply(*w.Event)
			}
			j.Job = state.Jobs[j.id]
			if holds != nil && holds(w) {
				return errSeen
			}
			return nil
		})
		if err == nil || errors.Is(err, errSeen) {
			return j
		}
		if tutti.CodeOf(err) != tutti.CodeUnavailable || ctx.Err() != nil {
			j.t.Fatalf("watch %s: %v", j.id, errors.Join(err, context.Cause(ctx)))
		}
		<-time.After(200 * time.Millisecond) // the server is starting
	}
}

// The method `end` watches the job to its verdict.
func (j *job) end() *job {
	j.t.Helper()
	j.until(nil)
	if j.Job == nil || !j.Ended() {
		j.t.Fatalf("job %s has no verdict", j.id)
	}
	return j
}

// execute runs a plan of the shared fleet to its end.
func execute(t *testing.T, plan tutti.PlanName, mode tutti.Mode) *job {
	t.Helper()
	return start(t, fleet, plan, mode).end()
}

// The method `last` returns the last run of a node in a step.
func (j *job) last(step tutti.StepName, node tutti.NodeName) *engine.Run {
	j.t.Helper()
	for _, n := range j.Step(step).Nodes {
		if n.Node == node && n.Last() != nil {
			return n.Last()
		}
	}
	j.t.Fatalf("job %s: no run of %s in %s", j.id, node, step)
	return nil
}

// The method `expect` checks that the run ended with this outcome and reason, and that the message
// contains the text.
func (j *job) expect(r *engine.Run, outcome tutti.Outcome, reason tutti.Reason, says string) {
	j.t.Helper()
	got := tutti.Result{Outcome: r.Outcome()}
	if r.Result != nil {
		got = *r.Result
	}
	text := got.Message + r.Lost
	for _, f := range got.Failures {
		text += fmt.Sprintf("\n%s %s:%d %s", f.Resource, f.File, f.Line, f.Message)
	}
	if got.Outcome != outcome || got.Reason != reason || !bytes.Contains([]byte(text), []byte(says)) {
		j.t.Errorf("%s on %s ended %s:%s, want %s:%s with %q; it says: %s", r.Step, r.Node, got.Outcome, got.Reason, outcome, reason, says, text)
	}
}

// tuttiCLI runs the binary on this machine as the operator of the fleet.
func tuttiCLI(t *testing.T, f *stage.LabFleet, args ...string) (stdout string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"--operator", f.Conn.OperatorDir}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if said.Len() > 0 {
		t.Logf("tutti %v: %s", args, said.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
