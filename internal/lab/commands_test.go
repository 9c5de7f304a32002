//go:build linux

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCommandsKeepTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	held, err := Machine{}.lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	cmd := commands{lock: held}.command(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held.Close() // as if this process had been killed
	second, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if got, err := tryLock(second); got || err != nil {
		t.Errorf("lock while a command still runs: got %v, %v; want it held", got, err)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := tryLock(second); !got || err != nil {
		t.Errorf("lock after the last command: got %v, %v; want it free", got, err)
	}
}

func TestLockWaitEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Machine{}.lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	var log strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := (Machine{Log: &log}).lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lock that stays held: got %v, want the deadline", err)
	}
	if !strings.Contains(log.String(), path) {
		t.Errorf("the wait says nothing of %s: %q", path, log.String())
	}
}

func TestCommandErrorSaysWhatTheCommandSaid(t *testing.T) {
	lock, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	err = commands{lock: lock}.run(t.Context(), "no such thing\n", "sh", "-c", "cat >&2; exit 3")
	if want := "sh -c cat >&2; exit 3: exit status 3: no such thing"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
