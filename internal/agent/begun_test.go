package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// The method `tampered` changes each answer to a claim. The changed answers look like those of a
// server whose log went back.
func (l *lab) tampered(change func(*wire.Claimed)) {
	l.line.alter = func(op string, reply []byte) []byte {
		var claimed wire.Claimed
		if op != wire.OpClaim || json.Unmarshal(reply, &claimed) != nil {
			return reply
		}
		change(&claimed)
		raw, err := json.Marshal(claimed)
		if err != nil {
			l.t.Error(err)
		}
		return raw
	}
}

// TestAnOrderIsBegunOnceEvenIfItsDirectoryIsGone: the agent remembers begun orders even if it no
// longer has the directories of their runs (finding F4).
func TestAnOrderIsBegunOnceEvenIfItsDirectoryIsGone(t *testing.T) {
	cases := map[string]struct {
		fence  func(*tutti.Fence)
		starts int
		says   string
	}{
		"the next one":                 {func(*tutti.Fence) {}, 2, ""},
		"begun before":                 {func(f *tutti.Fence) { f.Seq = 0 }, 1, "older than the order of run"},
		"of an older epoch":            {func(f *tutti.Fence) { f.Epoch, f.Seq = 0, 1000 }, 1, "older than the order of run"},
		"of a server that writes none": {func(f *tutti.Fence) { *f = tutti.Fence{} }, 2, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			var second atomic.Bool
			l.tampered(func(c *wire.Claimed) {
				if second.Load() && c.Order != nil {
					tc.fence(&c.Fence)
				}
			})
			l.start()
			l.end(l.job())
			second.Store(true)
			got := l.end(l.job())
			if l.ruby.started() != tc.starts || !strings.Contains(got.Message, tc.says) || (got.Outcome == tutti.Interrupted) != (tc.says != "") {
				t.Errorf("%+v after %d starts", got, l.ruby.started())
			}
		})
	}
}

// TestTheSameOrderAgain: a directory without a marker shows that Puppet was not started. If the
// directory is missing, nobody knows whether Puppet was started.
func TestTheSameOrderAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		left    []string // files in the run's directory; nil if the directory is gone
		starts  int
		outcome tutti.Outcome
	}{
		"killed before the marker":    {"Puppet was not started", []string{"wanted"}, 1, tutti.Changed},
		"directory lost":              {"it may have been", nil, 0, tutti.Interrupted},
		"killed while it was refused": {"the directory was made to refuse it", []string{}, 0, tutti.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			var once sync.Once
			var ordered tutti.RunID
			l.line.alter = func(op string, reply []byte) []byte {
				var claimed wire.Claimed
				if op == wire.OpClaim && json.Unmarshal(reply, &claimed) == nil && claimed.Order != nil {
					once.Do(func() { // leave the files of an agent that is killed after it has written BegunFile
						ordered = claimed.Order.Run
						if err := agent.WriteBegun(l.dir, claimed); err != nil {
							t.Error(err)
						}
					})
					return []byte("killed") // only the next agent gets the order
				}
				return reply
			}
			l.start()
			job := l.job()
			l.until(job, "run.claimed")
			l.line.until(wire.OpClaim, 2)
			l.kill()
			l.line.alter = nil
			if tc.left != nil {
				if err := os.MkdirAll(l.runDir(ordered), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range tc.left {
				l.put(ordered, name, []byte{})
			}
			l.start()
			if got := l.end(job); got.Outcome != tc.outcome || l.ruby.started() != tc.starts {
				t.Errorf("%s: %+v after %d starts", tc.reason, got, l.ruby.started())
			}
		})
	}
}

// The method `troubled` waits until the node reports a trouble with this text.
func (l *lab) troubled(says string) {
	l.t.Helper()
	l.line.wait("the trouble "+says, func() bool { return strings.Contains(l.view().Trouble, says) })
}

func quick(o *agent.Options) { o.Beat = 10 * time.Millisecond }

// TestAMemoryThatCannotBeRead: if the file of begun orders cannot be read, the node begins no
// order, and reports what to do.
func TestAMemoryThatCannotBeRead(t *testing.T) {
	l := newLab(t, applies)
	l.start()
	l.end(l.job())
	l.kill()
	path := filepath.Join(l.dir, "begun.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("x"), raw...), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(quick)
	l.job()
	l.troubled("begun.json")
	if l.ruby.started() != 1 {
		t.Errorf("Puppet was started %d times", l.ruby.started())
	}
}

// TestAServerThatWentBackIsNotObeyed: the node reports that the server's log went back.
// The node works again when the server begins the next epoch.
func TestAServerThatWentBackIsNotObeyed(t *testing.T) {
	l := newLab(t, applies)
	l.tampered(func(c *wire.Claimed) { c.Position.Seq += 1000 }) // as if the server had acknowledged 1000 more events and then lost them
	l.start(quick)
	l.line.settle()
	l.line.settle() // wait until the agent has noted the first answer
	l.job()
	l.troubled("its log has gone back")
	if l.ruby.started() != 0 {
		t.Errorf("Puppet was started %d times", l.ruby.started())
	}
}

// TestAPuppetIsFollowedWhileTheServerIsAway: a restarted agent opens the socket of its running
// Puppet, although the agent has no ticket for the server yet.
func TestAPuppetIsFollowedWhileTheServerIsAway(t *testing.T) {
	applying, ends := make(chan struct{}), make(chan struct{})
	l := newLab(t, func(p *puppet) tutti.Result {
		close(applying)
		<-ends
		return changed()
	})
	l.start()
	job := l.job()
	<-applying
	l.kill()
	l.line.sever()
	l.start(quick)
	dirs, err := filepath.Glob(filepath.Join(l.dir, "runs", "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	close(ends)
	l.line.wait("the run's conclusion", func() bool {
		_, err := os.Stat(filepath.Join(dirs[0], "result.json"))
		return err == nil
	})
	l.line.mend()
	if got := l.end(job); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
}

// TestAnEpochThatNoServerBegins: an attacker has run a server from a backup, and used a very high
// epoch. The honest server must still be able to begin a higher epoch.
func TestAnEpochThatNoServerBegins(t *testing.T) {
	for what, change := range map[string]func(*wire.Claimed){
		"the server's": func(c *wire.Claimed) { c.Position.Epoch = tutti.Epoch{Number: tutti.MaxEpoch - 1, Random: "x"} },
		"of the order": func(c *wire.Claimed) { c.Fence.Epoch = tutti.MaxEpoch - 1 },
	} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t, applies)
			var honest atomic.Bool
			told := make(chan struct{})
			once := sync.OnceFunc(func() { close(told) })
			l.tampered(func(c *wire.Claimed) {
				if !honest.Load() && c.Order != nil {
					change(c)
					once()
				}
			})
			l.start()
			job := l.job()
			<-told
			honest.Store(true)
			first := l.end(job)
			second := l.end(l.job())
			if l.ruby.started() != 2 || !first.Outcome.Good() || !second.Outcome.Good() {
				t.Errorf("%+v and %+v after %d starts, want both runs that the honest server wants", first, second, l.ruby.started())
			}
		})
	}
}
