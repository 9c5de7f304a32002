package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
)

// TestForeignRunsThatAreNotNoted: if the agent cannot store a foreign run on disk, the run may still have changed the
// node. The node is not good until the agent has stored and reported the run.
func TestForeignRunsThatAreNotNoted(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		restart bool
	}{
		{"the disk takes nothing while the run ends", false},
		{"the agent begins again, and the disk takes nothing yet", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			w, opt := witnesses(t)
			often := func(o *agent.Options) { o.Beat = 20 * time.Millisecond }
			l.start(opt, often)
			l.end(l.job())
			l.quiet(w)
			if got := l.view(); got.Stands != api.NodeGood || got.Unnoted != "" {
				t.Fatalf("at first: %s, %q", got.Stands, got.Unnoted)
			}
			full := filepath.Join(l.dir, "foreign", string(foreignID(1))+".json") // no file can take the place of this directory
			if err := os.MkdirAll(filepath.Join(full+".new", "stuff"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(full+".new", full); err != nil { // the directory is not empty, because an agent would remove an empty one
				t.Fatal(err)
			}
			if tc.restart {
				l.kill()
			}
			w.leave(t, strings.Replace(report(t, 1, foreignID(1)), `"changed":0`, `"changed":1`, 1))
			if tc.restart {
				l.start(opt, often)
			}
			w.taken(t)
			beats := 0 // each beat wakes the wait
			l.line.wait("the node to say so, or many beats", func() bool { beats++; return l.view().Unnoted != "" || beats > 100 })
			got := l.view()
			if got.Stands != api.NodeSuspect || !strings.Contains(got.Unnoted, "not empty") {
				t.Errorf("the node stands %s, and says %q", got.Stands, got.Unnoted)
			}
			if err := os.RemoveAll(full); err != nil {
				t.Fatal(err)
			}
			l.quiet(w)
			l.line.wait("the run to be noted", func() bool { return l.view().Unnoted == "" })
			if diff := cmp.Diff(api.NodeStale, l.view().Stands); diff != "" || !slices.Contains(l.told(), foreignID(1)) {
				t.Errorf("after that: %s told %v", diff, l.told())
			}
		})
	}
}

// TestLocalRunsThatAreNotNoted: the node is not good until the agent has stored and reported a local run.
func TestLocalRunsThatAreNotNoted(t *testing.T) {
	for _, tc := range []struct {
		reason string
		fill   func(l *lab, p *puppet) (full string, err error)
	}{
		{"the disk does not take the note", func(l *lab, p *puppet) (string, error) {
			full := filepath.Join(l.dir, "foreign", string(p.spec.Order.Run)+".json") // no file can take the place of this directory
			if err := os.MkdirAll(filepath.Join(full+".new", "stuff"), 0o755); err != nil {
				return "", err
			}
			return full, os.Rename(full+".new", full) // the directory is not empty, because an agent would remove an empty one
		}},
		{"the disk does not take the result", func(_ *lab, p *puppet) (string, error) {
			full := filepath.Join(p.dir, "log.jsonl") // the agent cannot sync this file
			return full, os.Symlink(full, full)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			l.start(serves, func(o *agent.Options) { o.Beat = 20 * time.Millisecond })
			l.end(l.job())
			filled := make(chan string, 1)
			l.ruby.does(func(p *puppet) tutti.Result {
				full, err := tc.fill(l, p)
				if err != nil {
					t.Error(err)
				}
				filled <- full
				return applies(p)
			})
			run := l.asked(tutti.ModeApply)
			full := <-filled
			beats := 0 // each beat wakes the wait
			l.line.wait("the node to say so, or many beats", func() bool { beats++; return l.view().Unnoted != "" || beats > 300 })
			if got := l.view(); got.Stands != api.NodeSuspect || !strings.Contains(got.Unnoted, string(run)) {
				t.Errorf("the node stands %s, and says %q", got.Stands, got.Unnoted)
			}
			if err := os.RemoveAll(full); err != nil {
				t.Fatal(err)
			}
			l.line.wait("the run to be noted", func() bool {
				got := l.view()
				if got.Unnoted == "" && got.LastRun != run {
					t.Errorf("the node says nothing more before the server knows of the run: %s", got.Stands)
				}
				return got.Unnoted == ""
			})
		})
	}
}
