package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

func TestALittleRoomBeginsNoRun(t *testing.T) {
	l := newLab(t, applies)
	var full atomic.Bool
	full.Store(true)
	l.start(func(o *agent.Options) {
		o.Space = func() error {
			if full.Load() {
				return tutti.Errorf(tutti.CodeUnavailable, "the disk is full")
			}
			return nil
		}
	})
	got := l.end(l.job())
	if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || got.Message != "the disk is full" || l.ruby.started() != 0 {
		t.Errorf("result %+v after %d starts", got, l.ruby.started())
	}
	if says := l.view().Trouble; says != "the disk is full" {
		t.Errorf("the node says %q", says)
	}
	full.Store(false)
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Errorf("with room again: %+v", got)
	}
}

// The server is away, and the disk has no room for the result. The agent keeps
// trying. When the server is back or the disk has room, the agent reports the
// outcome unchanged.
func TestAResultThatGoesNowhereIsKeptInMind(t *testing.T) {
	for _, tc := range []struct {
		reason string
		help   func(l *lab, stuff string)
	}{
		{"there is room again, then the server comes back", func(l *lab, stuff string) {
			if err := os.Remove(stuff); err != nil {
				t.Error(err)
			}
			for kept := []string{}; len(kept) == 0; { // wait until the result is in the outbox
				l.line.until(wire.OpResult, l.line.count(wire.OpResult)+1)
				kept, _ = filepath.Glob(filepath.Join(l.dir, "runs", "*", "result.json"))
			}
			l.line.mend()
		}},
		{"the server comes back", func(l *lab, _ string) { l.line.mend() }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var l *lab
			l = newLab(t, func(p *puppet) tutti.Result {
				out := applies(p)
				l.line.sever()
				// Leave room for this Puppet's verdict, but for nothing else.
				stuff := filepath.Join(l.dir, "runs", "stuff")
				for size := int64(1 << 20); size > 0; size -= 4096 {
					f, err := os.Create(stuff)
					if err == nil {
						_, err = f.Write(make([]byte, size))
						f.Close()
					}
					if err == nil {
						if err := os.Truncate(stuff, size-4096); err != nil {
							t.Error(err)
						}
						break
					}
					if !errors.Is(err, syscall.ENOSPC) {
						t.Error(err)
					}
				}
				return out
			})
			runs := filepath.Join(l.dir, "runs")
			if err := os.Mkdir(runs, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("none", runs, "tmpfs", 0, "size=256k"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				l.kill()
				if err := syscall.Unmount(runs, 0); err != nil {
					t.Error(err)
				}
			})
			l.start()
			job := l.job()
			run := l.until(job, "run.gated").Body.ID()
			l.line.until(wire.OpResult, 2) // the agent tried to send the result twice
			if _, err := os.Stat(filepath.Join(l.runDir(tutti.RunID(run)), "result.json")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the disk took the result: %v", err)
			}
			tc.help(l, filepath.Join(runs, "stuff"))
			if got := l.end(job); got.Outcome != tutti.Changed || strings.Contains(got.Message, "space") {
				t.Errorf("result %+v", got)
			}
			if l.ruby.started() != 1 {
				t.Errorf("%d starts", l.ruby.started())
			}
		})
	}
}
