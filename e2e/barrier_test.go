//go:build e2e

package e2e_test

import (
	"io"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/lab"
)

// A run waits at a barrier where its Puppet code contains waitExec (during the apply) or
// waitCompile (during the compile). If the host has no barrier, the run continues at once.
const (
	barrierFile = "/run/e2e-barrier"
	passBarrier = `if [ -p ` + barrierFile + ` ]; then cat ` + barrierFile + `; fi`
	waitExec    = `exec { 'barrier': command => "/bin/sh -c '` + passBarrier + `'" }` + "\n"
	waitCompile = `$barrier = generate('/bin/sh', '-c', '` + passBarrier + `')` + "\n"
)

// A `barrier` stops one run on a host: the first run that reaches the barrier.
type barrier struct {
	t       *testing.T
	host    *lab.Host
	in      io.WriteCloser
	reached chan error
}

// newBarrier creates a barrier on a host. The barrier opens at the end of the test in any case.
func newBarrier(t *testing.T, h *lab.Host) *barrier {
	t.Helper()
	sh(t, h, "rm -f "+barrierFile+"; mkfifo "+barrierFile)
	// The command opens the pipe for writing. The opening ends only when another process reads from
	// the pipe. The command then removes the pipe, so that later runs do not stop.
	cmd := h.Command(t.Context(), "sh", "-c", "exec 3> "+barrierFile+" && rm "+barrierFile+" && echo reached && read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &barrier{t: t, host: h, in: in, reached: make(chan error, 1)}
	go func() { // the goroutine ends when the command ends
		_, err := io.ReadFull(out, make([]byte, len("reached\n")))
		b.reached <- err
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the process was killed, or has already ended
	})
	later(t, h, "rm -f "+barrierFile)
	return b
}

// The method `wait` returns when a run waits at the barrier.
func (b *barrier) wait() {
	b.t.Helper()
	select {
	case err := <-b.reached:
		if err != nil {
			b.t.Fatalf("the barrier on %s broke: %v", b.host.Name, err)
		}
	case <-time.After(2 * time.Minute):
		b.t.Fatalf("no run came to the barrier on %s", b.host.Name)
	}
}

// The method `open` lets the run continue.
func (b *barrier) open() {
	b.t.Helper()
	if err := b.in.Close(); err != nil {
		b.t.Fatal(err)
	}
}
