package natsbus_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// These two environment variables are set only in the process that the test stops. The first contains the bus's
// address. The second contains the directory of the authority that makes the process's credentials.
const (
	stoppedBus  = "TUTTI_TEST_STOPPED_BUS"
	stoppedKeys = "TUTTI_TEST_STOPPED_KEYS"
)

// TestStoppedChild is not a test. TestStoppedChild appends one event and reports
// it. TestStoppedChild appends another event when the parent asks for it.
func TestStoppedChild(t *testing.T) {
	if os.Getenv(stoppedBus) == "" {
		return
	}
	authority, err := identity.Load(os.Getenv(stoppedKeys))
	if err != nil {
		t.Fatal(err)
	}
	log, err := natsbus.OpenLog(t.Context(), dialLog(t, authority, os.Getenv(stoppedBus)), natsbus.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for _, key := range []string{"first", "late"} {
		if last, err = log.Append(t.Context(), last, []tutti.Event{setValue(key)}); err != nil {
			fmt.Printf("refused %s\n", tutti.CodeOf(err))
			return
		}
		fmt.Printf("appended %s\n", key)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	}
}

func dialLog(t *testing.T, authority *identity.Authority, url string) *nats.Conn {
	t.Helper()
	config, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	creds, err := authority.ServerCreds()
	if err != nil {
		t.Fatal(err)
	}
	nc, err := natsbus.Connect(t.Context(), url, creds.Log.JWT, creds.Log.Seed, nats.Secure(config), nats.TLSHandshakeFirst())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestAStoppedWriterCannotWrite stops a writer's process, lets another writer
// write, and then continues the first process.
func TestAStoppedWriterCannotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bus := bustest.StartSyncIn(t, dir)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStoppedChild$")
	child.Env = append(os.Environ(), stoppedBus+"="+bus.URL(), stoppedKeys+"="+filepath.Join(dir, "identity"))
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	lines := bufio.NewScanner(stdout)
	said := func() string {
		for lines.Scan() {
			if text := lines.Text(); strings.HasPrefix(text, "appended") || strings.HasPrefix(text, "refused") {
				return text
			}
		}
		return "nothing"
	}
	if got := said(); got != "appended first" {
		t.Fatalf("the first writer %s", got)
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := openLog(t, bus)
	if _, err := second.Append(t.Context(), 1, []tutti.Event{setValue("second")}); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(stdin); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := said(); got != "refused conflict" {
		t.Errorf("the writer that was stopped: %s, want refused conflict", got)
	}
	if diff := cmp.Diff([]string{"1 first", "2 second"}, keys(t, second, 0)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
