//go:build killpoints

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/operator"
)

// killFleet is a server and two agents. The server and the agents are real processes in their own
// directory. If a process ends, the test starts it again.
type killFleet struct {
	dir    string
	client *httpapi.Client
	stop   context.CancelFunc
	group  *errgroup.Group
	ctx    context.Context // ends when one of the processes ends with an error
	killed atomic.Bool     // true after the chosen process was killed
	plan   tutti.PlanName  // empty for the plan deploy
}

// These are the names of the fleet's processes, and of their state directories.
const (
	serverProcess = "server"
	dbProcess     = "db"
	webProcess    = "web"
)

const killPlan = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01]}
  web: {nodes: [web-01]}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
  - {to: web, read: [db/**]}
plans:
  deploy: {steps: [{run: db}, {run: web}]}
  own: {exclusive: true, steps: [{run: db}]}
`

const killSite = `
db-01 read shared/x
db-01 collect Database
db-01 export Database main
db-01 publish db/ready true
db-01 publish db/port 5432
web-01 collect Database
web-01 read db/ready
`

// A template has the directory of a fleet whose nodes have joined and whose code is pushed, and the
// addresses of the fleet's server.
type template struct{ dir, bus, listen string }

// newServer creates a new server without nodes, and the files of the fleet.
func newServer(t *testing.T, site string) template {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	tpl := template{dir: dir, bus: bustest.Address(t), listen: bustest.Address(t)}
	for name, text := range map[string]string{"tutti.yaml": killPlan, "code/manifests/site.pp": site} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tpl.tutti(t, "", "server", "init", "--dir", serverProcess, "--host", "127.0.0.1", "--listen", tpl.listen, "--bus", tpl.bus)
	return tpl
}

// The method `tutti` runs a command as the operator and returns its standard output.
func (tpl template) tutti(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tutti", args...)
	cmd.Dir, cmd.Stdin = tpl.dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "TUTTI_OPERATOR="+filepath.Join(tpl.dir, "operator"))
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("tutti %s: %v\n%s", strings.Join(args, " "), err, said.String())
	}
	return out.String()
}

func newTemplate(t *testing.T, site string) template {
	t.Helper()
	tpl := newServer(t, site)
	f := &killFleet{dir: tpl.dir}
	f.begin(t, nil, serverProcess)
	defer f.end(t)
	f.ready(t)
	for _, node := range []string{dbProcess, webProcess} {
		tpl.join(t, node)
		tpl.oldRuns(t, node)
	}
	tpl.tutti(t, "", "code", "push")
	return tpl
}

func (tpl template) join(t *testing.T, node string) {
	t.Helper()
	tpl.tutti(t, tpl.tutti(t, "", "token", "create", "--name", node+"-01"), "join", "--root", "root", "--dir", node, "--unit=false")
}

// oldRuns creates as many old runs as an agent keeps, so that the next run makes the agent delete
// one.
func (tpl template) oldRuns(t *testing.T, node string) {
	t.Helper()
	for i := range 20 {
		dir := filepath.Join(tpl.dir, node, "runs", fmt.Sprintf("00000000-0000-7000-8000-%012d", i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sent"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		past := time.Unix(int64(i), 0)
		if err := os.Chtimes(dir, past, past); err != nil {
			t.Fatal(err)
		}
	}
}

// The method `fleet` starts a copy of the template and returns the running fleet. The argument
// `env` has additional environment variables for the first process of each name.
func (tpl template) fleet(t *testing.T, env map[string]string) *killFleet {
	t.Helper()
	f := tpl.copy(t)
	f.begin(t, env, serverProcess, dbProcess, webProcess)
	return f
}

// The method `copy` returns a copy of the template with its own bus.
func (tpl template) copy(t *testing.T) *killFleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", tpl.dir+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	addresses := strings.NewReplacer(tpl.bus, bustest.Address(t), tpl.listen, "127.0.0.1:0")
	for _, name := range []string{"server/server.json", "db/identity/membership.json", "web/identity/membership.json"} {
		path := filepath.Join(dir, name)
		raw, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(raw, []byte(tpl.bus)) {
			t.Fatalf("%s does not name the bus: %v", path, err)
		}
		if err := os.WriteFile(path, []byte(addresses.Replace(string(raw))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	puppetIn(t, dir)
	return &killFleet{dir: dir}
}

// puppetIn installs the fake Puppet below dir/root.
func puppetIn(t *testing.T, dir string) {
	t.Helper()
	ruby, err := exec.LookPath("fakeruby")
	if err == nil {
		err = fakePuppet(filepath.Join(dir, "root"), ruby)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The method `begin` starts processes, the server first. It restarts them until the end of the test. The argument `env`
// has additional environment variables for the first process of each name.
func (f *killFleet) begin(t *testing.T, env map[string]string, names ...string) {
	t.Helper()
	if f.group == nil {
		client, err := operator.Connect(operator.ConnectOptions{OperatorDir: filepath.Join(f.dir, "none"), Socket: f.socket(t)})
		if err != nil {
			t.Fatal(err)
		}
		f.client = client
		var ctx context.Context
		ctx, f.stop = context.WithCancel(context.Background())
		f.group, f.ctx = errgroup.WithContext(ctx)
	}
	for _, name := range names {
		args := []string{"agent", "--dir", name, "--root", "root", "--warm", "0"}
		if name == serverProcess {
			args = []string{"server", "--dir", name, "--socket", "socket"}
		}
		f.group.Go(func() error { return f.supervise(name, args, env[name]) })
	}
}

// The method `socket` returns the path on which the server listens. A client uses the path of the
// socket only if a file exists there.
func (f *killFleet) socket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(f.dir, "socket")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The method `supervise` restarts a process after its end, like systemd does for a unit. The only
// expected end is a SIGKILL of the first process.
func (f *killFleet) supervise(name string, args []string, env string) error {
	ctx := f.ctx
	out, err := os.OpenFile(filepath.Join(f.dir, name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for {
		cmd := exec.CommandContext(ctx, "tutti", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = f.dir, out, out
		cmd.Env = append(os.Environ(), env)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 20 * time.Second
		err := cmd.Run()
		if ctx.Err() != nil {
			return nil
		}
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !strings.HasPrefix(env, killpoint.At+"=") || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			return fmt.Errorf("%s ended by itself: %w", name, err)
		}
		f.killed.Store(true)
		env = ""
	}
}

// The method `end` stops the fleet.
func (f *killFleet) end(t *testing.T) {
	t.Helper()
	f.stop()
	if err := f.group.Wait(); err != nil {
		t.Error(err)
	}
}

// The method `clear` ends the fleet and any remaining Puppets. If the test has failed, clear prints
// the output of the processes.
func (f *killFleet) clear(t *testing.T) {
	f.end(t)
	pids, _ := filepath.Glob(filepath.Join(f.dir, "*", "runs", "*", "pid"))
	for _, path := range pids {
		var pid int
		raw, _ := os.ReadFile(path)
		if _, err := fmt.Sscanf(string(raw), `{"pid":%d`, &pid); err == nil && t.Failed() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if t.Failed() {
		for _, name := range []string{serverProcess, dbProcess, webProcess} {
			raw, _ := os.ReadFile(filepath.Join(f.dir, name+".out"))
			t.Logf("%s:\n%s", name, raw)
			said, _ := filepath.Glob(filepath.Join(f.dir, name, "runs", "*", "std*"))
			for _, path := range said {
				raw, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", path, raw)
			}
		}
	}
	_ = os.RemoveAll(f.dir)
}

// killDeadline limits the time of a hanging test. killDeadline is long, because the machine may be
// busy.
const killDeadline = 3 * time.Minute

// The method `ready` waits until the server answers.
func (f *killFleet) ready(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), killDeadline)
	defer cancel()
	if err := again(ctx, func() error { _, err := f.client.ListNodes(ctx); return err }); err != nil {
		t.Fatal(err)
	}
}

// The function `again` repeats an action while the server is unreachable. It returns when the action
// succeeds, or when the server refuses the action.
func again(ctx context.Context, do func() error) error {
	for {
		err := do()
		if code := tutti.CodeOf(err); err == nil || code != tutti.CodeUnavailable && code != tutti.CodeDeadline {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// died waits until the chosen process was killed. The process may come to its point after the last answer that the test
// waits for.
func (f *killFleet) died(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killDeadline)
	defer cancel()
	return again(ctx, func() error {
		if !f.killed.Load() {
			return tutti.Errorf(tutti.CodeUnavailable, "the process never came to the point")
		}
		return nil
	})
}

// runJob starts the plan once, as the n-th job, and returns all events of this job.
func (f *killFleet) runJob(ctx context.Context, n int) ([]tutti.Event, error) {
	var job tutti.JobID
	err := again(ctx, func() error {
		jobs, err := f.client.ListJobs(ctx)
		if err != nil {
			return err
		}
		if len(jobs) >= n { // the job was started, but the answer was lost
			job = jobs[0].Job
			return nil
		}
		job, err = f.client.StartJob(ctx, api.StartJob{Plan: cmp.Or(f.plan, "deploy"), Mode: tutti.ModeApply})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start the job: %w", err)
	}
	var events []tutti.Event
	err = again(ctx, func() error {
		events = nil
		return f.client.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
			if w.Event != nil {
				events = append(events, *w.Event)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", job, err)
	}
	return events, nil
}
