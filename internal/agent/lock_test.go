package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
)

// The function `locked` returns a lock file that belongs to another process.
func locked(t *testing.T) (path string, owner *exec.Cmd) {
	t.Helper()
	owner = exec.Command("sleep", "600")
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	path = filepath.Join(t.TempDir(), "agent_catalog_run.lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, owner
}

func TestWaitingForALock(t *testing.T) {
	cases := map[string]struct {
		reason  string
		release func(t *testing.T, path string, owner *exec.Cmd)
		early   bool // true if the release comes before the wait begins
	}{
		"removed": {"its owner is done", func(t *testing.T, path string, _ *exec.Cmd) { remove(t, path) }, false},
		"owner killed": {"the file stays, as Puppet leaves it", func(t *testing.T, _ string, owner *exec.Cmd) {
			if err := owner.Process.Kill(); err != nil {
				t.Error(err)
			}
		}, false},
		"changed": {"another Puppet has it now; the launcher looks for itself", func(t *testing.T, path string, _ *exec.Cmd) {
			if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
				t.Error(err)
			}
		}, false},
		"gone before": {"it went before it was watched", func(t *testing.T, path string, _ *exec.Cmd) { remove(t, path) }, true},
		"owner gone before": {"its owner went before it was watched", func(t *testing.T, _ string, owner *exec.Cmd) {
			_ = owner.Process.Kill()
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			waits := make(chan struct{})
			l.start(func(o *agent.Options) { o.Logger = told(o.Logger, "waiting for the lock", waits) })
			l.inRun(func(p *puppet) {
				path, owner := locked(t)
				if tc.early {
					tc.release(t, path, owner)
				} else {
					go func() {
						<-waits
						tc.release(t, path, owner)
					}()
				}
				r := p.say(ask{"op": "lock_wait", "path": path, "pid": owner.Process.Pid, "command": "puppet agent"})
				if !r.OK || !r.Released {
					t.Errorf("%s: %+v, want released", tc.reason, r)
				}
			})
		})
	}
}

func TestALockThatCannotBeWaitedFor(t *testing.T) {
	started(t).inRun(func(p *puppet) {
		if r := p.say(ask{"op": "lock_wait", "pid": os.Getpid()}); r.Code != tutti.CodeInvalid {
			t.Errorf("without a path: %+v", r)
		}
		if r := p.say(ask{"op": "lock_wait", "pid": os.Getpid(), "path": "/nowhere/lock"}); r.OK || !strings.Contains(r.Error, "no such file") {
			t.Errorf("in a directory that is not there: %+v", r)
		}
	})
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Error(err)
	}
}
