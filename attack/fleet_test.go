package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/operator"
)

// binary is the path of the attacked program, which the tests build once.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tutti-attack-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "tutti")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/tutti").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "attack: build: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// patience is the time limit for each action. patience is long, because the machine may be busy.
const patience = 3 * time.Minute

// fleet is a real server and two honest nodes.
type fleet struct {
	t       *testing.T
	dir     string
	https   string // host:port
	bus     string // host:port
	admin   *httpapi.Client
	honest  [2]*node
	process *exec.Cmd // process is nil after the test has ended the server.
	limit   int       // limit is the server's limit of open files. 0 means the limit of the test process.
}

const fleetFile = `
fleet: attack
environment: {name: production, path: ./code}
inventory: {facts: true}
groups:
  honest: {nodes: [node-01, node-02]}
  victims: {nodes: [taken]}
grants:
  - {to: honest, exports: [{type: Database, defined: true}], write: [honest/**]}
plans:
  every: {steps: [{run: honest}]}
  taken: {steps: [{run: victims}]}
`

// The function `start` starts a fleet and checks that it works. At the end of the test, start checks
// again that the fleet works, and ends everything.
func start(t *testing.T) *fleet {
	t.Helper()
	return startWith(t, 0)
}

// startWith is like start, with a limit for the server's open files. With 0 the server has the
// limit of the test process.
func startWith(t *testing.T, limit int) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "tutti-attack-") // the directory is short because the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fleet{t: t, dir: dir, https: bustest.Address(t), bus: bustest.Address(t), limit: limit}
	f.tutti("server", "init", "--dir", f.path("server"), "--host", "127.0.0.1", "--listen", f.https, "--bus", f.bus)
	f.serve()
	f.admin = f.connect(f.path("operator"))
	f.push()
	for i := range f.honest {
		f.honest[i] = f.join(tutti.NodeName(fmt.Sprintf("node-0%d", i+1)))
		f.honest[i].work()
	}
	f.works("before")
	return f
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

// The method `tutti` runs the program as the first operator and returns its output.
func (f *fleet) tutti(args ...string) string {
	f.t.Helper()
	out, err := f.try(f.path("operator"), args...)
	if err != nil {
		f.t.Fatalf("tutti %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// The method `try` runs the program as an operator.
func (f *fleet) try(operator string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.t.Context(), binary, append([]string{"--operator", operator, "--socket", f.path("socket")}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The method `serve` starts the server and waits until it reports that it is ready.
func (f *fleet) serve() {
	f.t.Helper()
	_ = os.Remove(f.path("notify")) // the socket of the server before this server
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: f.path("notify"), Net: "unixgram"})
	if err != nil {
		f.t.Fatal(err)
	}
	defer ready.Close()
	said, err := os.Create(f.path("said"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer said.Close()
	f.process = exec.Command(binary, "--socket", f.path("socket"), "server", "--dir", f.path("server"))
	if f.limit > 0 {
		f.process = exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, f.limit), "sh"}, f.process.Args...)...)
	}
	f.process.Env = append(os.Environ(), "NOTIFY_SOCKET="+f.path("notify"))
	f.process.Stdout, f.process.Stderr = said, said
	f.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the server dies with the test process
	if err := f.process.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(f.end)
	_ = ready.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 64)
	if n, err := ready.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "READY=1") {
		f.t.Fatalf("the server is not ready: %q, %v", buf[:n], err)
	}
}

// The method `end` stops the server. If the server has already ended by itself, the test fails.
func (f *fleet) end() {
	if f.process == nil {
		return
	}
	interrupted := f.process.Process.Signal(syscall.SIGINT)
	err := f.process.Wait()
	f.process = nil
	if f.t.Failed() || interrupted != nil || err != nil {
		said, _ := os.ReadFile(f.path("said"))
		f.t.Errorf("the server ended with %v (%v), it said:\n%s", err, interrupted, said)
	}
}

// The method `connect` returns a client with the credentials in a directory.
func (f *fleet) connect(dir string) *httpapi.Client {
	f.t.Helper()
	client, err := operator.Connect(operator.ConnectOptions{Server: "https://" + f.https, OperatorDir: dir})
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

// The method `push` sends signed code and the fleet file to the server.
func (f *fleet) push() {
	f.t.Helper()
	code := f.path("code/manifests")
	if err := os.MkdirAll(code, 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(code, "site.pp"), []byte("notify { 'hello': }\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path("tutti.yaml"), []byte(fleetFile), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.tutti("code", "push", "--file", f.path("tutti.yaml"))
}

// The method `works` checks that a job on the honest nodes succeeds.
func (f *fleet) works(when string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	id, err := f.admin.StartJob(ctx, api.StartJob{Plan: "every", Mode: tutti.ModeApply})
	if err != nil {
		f.t.Fatalf("%s the attack no job starts: %v", when, err)
	}
	state := engine.NewState()
	err = f.admin.WatchJob(ctx, api.WatchJob{Job: id, Follow: true}, func(w api.Watched) error {
		if w.Event != nil {
			state.Apply(*w.Event)
		}
		return nil
	})
	if err != nil {
		f.t.Fatalf("%s the attack the job %s: %v", when, id, err)
	}
	job := state.Jobs[id]
	if s := job.Summary(job.EndedAt); s.Outcome != tutti.VerdictSucceeded || s.Runs != 2 || s.Failed != 0 {
		f.t.Fatalf("%s the attack the job %s ended %+v: %s", when, id, s, job.Message)
	}
}

// authority reads the server's keys from its disk, like an attacker with access to that disk.
func (f *fleet) authority() *identity.Authority {
	f.t.Helper()
	authority, err := identity.Load(f.path("server/identity"))
	if err != nil {
		f.t.Fatal(err)
	}
	return authority
}

// The method `events` reads the log, as an auditor does.
func (f *fleet) events() []tutti.Event {
	f.t.Helper()
	var out []tutti.Event
	err := f.admin.ReadAudit(f.t.Context(), api.ReadAudit{}, func(entry api.AuditEntry) error {
		var e tutti.Event
		if err := json.Unmarshal(entry.Raw, &e); err != nil {
			return err
		}
		e.Seq = entry.Seq
		out = append(out, e)
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// denial is an expected entry of the audit log. Each text here must occur in the entry's field with
// the same name.
type denial struct{ who, what, reason string }

// The method `audited` waits until the audit log has a denial.
func (f *fleet) audited(want denial) {
	f.t.Helper()
	var there []string
	f.eventually(func() error {
		there = nil
		for _, e := range f.events() {
			d, ok := e.Body.(*tutti.Denied)
			if !ok {
				continue
			}
			if strings.Contains(d.Who, want.who) && strings.Contains(d.What, want.what) && strings.Contains(d.Reason, want.reason) {
				return nil
			}
			there = append(there, fmt.Sprintf("%+v", *d))
		}
		return fmt.Errorf("the audit log does not have %+v; it has\n%s", want, strings.Join(there, "\n"))
	})
}

// The method `eventually` repeats a function until it succeeds. eventually is for effects that may
// come after the answer of a call.
func (f *fleet) eventually(try func() error) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			f.t.Fatal(errors.Join(err, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// wantCode fails the test if err has none of the codes.
func wantCode(t *testing.T, what string, err error, codes ...tutti.Code) {
	t.Helper()
	for _, code := range codes {
		if tutti.CodeOf(err) == code {
			return
		}
	}
	t.Errorf("%s: error %v (code %q), want code %q", what, err, tutti.CodeOf(err), codes)
}
