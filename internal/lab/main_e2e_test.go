//go:build e2e

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Some tests kill a process with kill -9. The killed process runs this test binary. The variable
// says what the process does instead of running tests.
const actEnv = "LAB_E2E_ACT"

func TestMain(m *testing.M) {
	if act := os.Getenv(actEnv); act != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := perform(ctx, act)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := Check(); err != nil {
		fmt.Fprintln(os.Stderr, "tests on lab hosts cannot run:", err)
		os.Exit(1)
	}
	if err := os.Setenv(testsEnv, strconv.Itoa(os.Getpid())); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The function `perform` does the work of a process that the test will kill.
func perform(ctx context.Context, act string) error {
	m := Machine{State: os.Getenv("LAB_E2E_STATE"), Cache: os.Getenv("LAB_E2E_CACHE")}
	m.Program = program(m)
	switch act {
	case "up":
		_, err := m.Up(ctx, twoHosts("killed"))
		return err
	case "prepare":
		_, err := m.Base(ctx, prepared(preparesForEver))
		return err
	case "tutti":
		return performTutti(ctx, m, os.Args[1:])
	case "base":
		_, err := m.Base(ctx, Definition{})
		return err
	case "chroot":
		base, err := m.Base(ctx, Definition{})
		if err != nil {
			return err
		}
		return m.Run(ctx, Chroot{Base: base, Args: []string{"sh", "-c", "sleep 86399 & sleep 86398"}})
	}
	return fmt.Errorf("unknown act %q", act)
}

// performTutti does the work of a tutti process that package lab starts.
func performTutti(ctx context.Context, m Machine, args []string) error {
	switch command := strings.Join(args[:2], " "); command {
	case "lab relay":
		port, tap, slow, err := ParseRelay(args[2:])
		if err != nil {
			return err
		}
		return Relay(ctx, port, tap, slow)
	case "lab down":
		return m.Down(ctx, args[2])
	default:
		return fmt.Errorf("unknown command %q", command)
	}
}

// The function `program` returns a command that runs this test binary in place of tutti.
func program(m Machine) []string {
	return []string{"env", actEnv + "=tutti", "LAB_E2E_STATE=" + m.State, "LAB_E2E_CACHE=" + m.Cache, os.Args[0]}
}

// The function `prepared` returns the definition of a small base. The host a-01 prepares this base
// with the script.
func prepared(script string) Definition {
	return Definition{Preparation: Preparation{Script: script, Names: []string{"a-01.one.test", "a-01"}}}
}

// The function `actor` returns the command of a process that performs the act on the machine `m`.
func actor(m Machine, act string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), actEnv+"="+act, "LAB_E2E_STATE="+m.State, "LAB_E2E_CACHE="+m.Cache)
	return cmd
}

func twoHosts(name string) Spec {
	return Spec{Name: name, Hosts: []HostSpec{{Name: "a-01"}, {Name: "a-02"}}}
}

// testLog writes the progress of a machine to the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", p)
	return len(p), nil
}

// testMachine returns a Machine with its own state directory and with this
// machine's cache.
func testMachine(t *testing.T) Machine {
	m := Machine{State: t.TempDir(), Cache: DefaultCache, Log: testLog{t}}
	m.Program = program(m)
	return m
}

// The function `up` creates a lab and removes it when the test ends.
func up(t *testing.T, m Machine, spec Spec) *Running {
	t.Helper()
	running, err := m.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(m.labDir(spec.Name)); err != nil {
			return // the test has already removed the lab
		}
		if err := m.Down(context.Background(), spec.Name); err != nil {
			t.Error(err)
		}
	})
	return running
}
