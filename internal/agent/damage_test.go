package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// damages are the kinds of damage that disks, power failures and people do to a
// file.
var damages = map[string]func(t *testing.T, path string){
	"truncated": func(t *testing.T, path string) {
		rewrite(t, path, func(raw []byte) []byte { return raw[:len(raw)/2] })
	},
	"empty": func(t *testing.T, path string) { rewrite(t, path, func([]byte) []byte { return nil }) },
	"garbage": func(t *testing.T, path string) {
		rewrite(t, path, func(raw []byte) []byte { return append(bytes.Repeat([]byte{0}, len(raw)), '\n') })
	},
	"flipped": func(t *testing.T, path string) {
		rewrite(t, path, func(raw []byte) []byte {
			raw = slices.Clone(raw)
			raw[len(raw)/3] ^= 1
			return raw
		})
	},
	"directory": func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	},
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRunsEndAndOthersGoOn damages each file of a run whose result the server does not have.
// Puppet is not started again. The outcome is not good and names the damaged file. The next run
// works as usual.
func TestDamagedRunsEndAndOthersGoOn(t *testing.T) {
	for _, c := range []struct {
		file   string
		reason string
	}{
		{"result.json", "how it ended is lost"},
		{"answers.jsonl", "what it was told is lost"},
		{"gate.json", "what it handed over is lost"},
		{"publish.jsonl", "what it published is lost"},
		{"report.json", "what Puppet said is lost"},
	} {
		for name, damage := range damages {
			t.Run(c.file+" "+name, func(t *testing.T) {
				var l *lab
				l = newLab(t, func(p *puppet) tutti.Result {
					out := applies(p)
					l.line.sever()
					p.say(ask{"op": "publish", "key": "db/x", "value": 1})
					if err := os.WriteFile(filepath.Join(p.dir, "report.json"), []byte(`{"status":"changed"}`), 0o600); err != nil {
						t.Error(err)
					}
					return out
				})
				l.start()
				job := l.job()
				run := l.until(job, "run.claimed").Body.(*tutti.RunClaimed).Run
				l.line.until(wire.OpPublish, 2) // the first message is from Puppet, the second from the outbox
				l.kill()
				damage(t, filepath.Join(l.runDir(run), c.file))
				l.ruby.does(applies)
				l.line.mend()
				l.start()
				got := l.end(job)
				if got.Run != run || got.Outcome.Good() || !strings.Contains(got.Message, c.file) || l.ruby.started() != 1 {
					t.Errorf("%s: result %+v after %d starts, want no good outcome and the file's name", c.reason, got, l.ruby.started())
				}
				if got := l.end(l.job()); got.Outcome != tutti.Changed {
					t.Errorf("the next run ended %+v", got)
				}
			})
		}
	}
}

// TestADamagedMarkerStartsNothing: with a damaged marker, nobody knows what was
// started, so the agent starts nothing.
func TestADamagedMarkerStartsNothing(t *testing.T) {
	for _, name := range []string{"truncated", "empty", "garbage", "directory"} { // a test in package puppet covers a flipped byte
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			job := l.job()
			order := l.node.MustClaim()
			l.put(order.Run, markerFile, agent.Spec{Order: order, Node: "db-01", StartedAt: time.Now()})
			damages[name](t, filepath.Join(l.runDir(order.Run), markerFile))
			l.start()
			if got := l.end(job); got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || l.ruby.started() != 0 {
				t.Errorf("result %+v after %d starts", got, l.ruby.started())
			}
			if got := l.end(l.job()); got.Outcome != tutti.Changed {
				t.Errorf("the next run ended %+v", got)
			}
		})
	}
}

// TestDamagedKnownAnswersAreNone: the agent does not use a damaged answer, because
// a wrong answer is worse than no answer.
func TestDamagedKnownAnswersAreNone(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			l.start()
			l.end(l.job())
			known, err := filepath.Glob(filepath.Join(l.dir, "known", "*.json"))
			if err != nil || len(known) == 0 {
				t.Fatalf("known answers %v, %v", known, err)
			}
			for _, path := range known {
				damage(t, path)
			}
			l.start(func(o *agent.Options) { o.Patience = 100 * time.Millisecond }) // how long a call waits while the line is cut
			l.ruby.does(func(p *puppet) tutti.Result {
				l.line.sever()
				if r := p.say(ask{"op": "hiera"}); r.OK {
					t.Errorf("a damaged answer was given: %+v", r)
				}
				l.line.mend()
				return tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}
			})
			if got := l.end(l.job()); got.Outcome != tutti.Waiting {
				t.Errorf("result %+v, want waiting for an answer", got)
			}
		})
	}
}

// TestDamagedCodeIsFetchedAgain: the agent fetches a damaged tree again, because
// Puppet runs its code as root.
func TestDamagedCodeIsFetchedAgain(t *testing.T) {
	for name, damage := range damages {
		for _, pattern := range []string{"code/*.manifest", "code/*/*/*.pp"} {
			t.Run(name+" "+pattern, func(t *testing.T) {
				l := newLab(t, applies)
				l.start()
				l.end(l.job())
				files, err := filepath.Glob(filepath.Join(l.dir, pattern))
				if err != nil || len(files) == 0 {
					t.Fatalf("%s: %v, %v", pattern, files, err)
				}
				before, err := os.ReadFile(files[0])
				if err != nil {
					t.Fatal(err)
				}
				damage(t, files[0])
				if got := l.end(l.job()); got.Outcome != tutti.Changed {
					t.Errorf("result %+v", got)
				}
				if after, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(before, after) {
					t.Errorf("%s is %q, %v", files[0], after, err)
				}
			})
		}
	}
}
