package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// conf is the path of puppet.conf.
func (w *witness) conf() string {
	return filepath.Join(filepath.Dir(filepath.Dir(w.file)), "etc", "puppet.conf")
}

// configure changes what puppet.conf says.
func (w *witness) configure(t *testing.T, change func()) {
	t.Helper()
	w.mu.Lock()
	change()
	w.mu.Unlock()
	if err := os.WriteFile(w.conf(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The method `second` lets `puppet apply` write its reports to another file. The method returns a witness of this
// other file.
func (w *witness) second(t *testing.T) *witness {
	t.Helper()
	w.apply = filepath.Join(filepath.Dir(filepath.Dir(w.file)), "user", "last_run_report.yaml")
	other := &witness{file: w.apply}
	other.makeDir(t)
	return other
}

// TestReportsOfPuppetApply: if `puppet apply` writes its reports to another file than `puppet agent`, the agent watches
// both files. A report of ours arrives at only one of them.
func TestReportsOfPuppetApply(t *testing.T) {
	for _, tc := range []struct {
		reason    string
		happens   func(t *testing.T, l *lab, ours tutti.RunID, agent, apply *witness)
		told      []tutti.RunID
		unwatched bool
	}{
		{"by puppet apply", func(t *testing.T, _ *lab, _ tutti.RunID, _, apply *witness) {
			apply.save(t, 100, 2, recent(t, foreignID(1)))
		}, []tutti.RunID{foreignID(1)}, false},
		{"by puppet agent", func(t *testing.T, _ *lab, _ tutti.RunID, agent, _ *witness) {
			agent.save(t, 100, 2, recent(t, foreignID(1)))
		}, []tutti.RunID{foreignID(1)}, false},
		{"by both", func(t *testing.T, _ *lab, _ tutti.RunID, agent, apply *witness) {
			agent.save(t, 100, 2, recent(t, foreignID(1)))
			apply.save(t, 101, 2, recent(t, foreignID(2)))
		}, []tutti.RunID{foreignID(1), foreignID(2)}, false},
		{"two by puppet apply", func(t *testing.T, _ *lab, _ tutti.RunID, _, apply *witness) {
			apply.save(t, 100, 2, recent(t, foreignID(1)))
			apply.save(t, 101, 2, recent(t, foreignID(2)))
		}, []tutti.RunID{foreignID(2)}, true},
		{"ours and another one by puppet apply", func(t *testing.T, _ *lab, ours tutti.RunID, _, apply *witness) {
			apply.save(t, 100, 2, recent(t, ours))
			apply.save(t, 101, 2, recent(t, foreignID(1)))
		}, []tutti.RunID{foreignID(1)}, false},
		{"two by puppet agent, and one of ours by puppet apply", func(t *testing.T, _ *lab, _ tutti.RunID, agent, _ *witness) {
			agent.save(t, 100, 2, recent(t, foreignID(1)))
			agent.save(t, 101, 2, recent(t, foreignID(2)))
		}, []tutti.RunID{foreignID(2)}, true},
		{"two by puppet apply, and one of ours of which the program is not known", func(t *testing.T, l *lab, _ tutti.RunID, _, apply *witness) {
			l.put(foreignID(1001), "report.json", []byte("{}"))
			l.put(foreignID(1001), "sent", []byte("{}")) // without this file, the run would look as if it had never begun, and the agent would remove the run's directory
			apply.save(t, 100, 2, recent(t, foreignID(1)))
			apply.save(t, 101, 2, recent(t, foreignID(2)))
		}, []tutti.RunID{foreignID(2)}, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, func(p *puppet) tutti.Result { p.report([]byte("{}")); return applies(p) })
			w, opt := witnesses(t)
			other := w.second(t)
			w.save(t, 48, 2, recent(t, foreignID(0)))
			l.seen(foreignID(0))
			l.start(opt)
			ours := l.end(l.job()).Run
			if !strings.HasPrefix(tc.reason, "ours ") { // in the other cases the report arrives later
				other.save(t, 60, 2, recent(t, ours))
			}
			l.quiet(w)
			held := make(chan struct{})
			w.held(func() { <-held })
			l.line.mend()
			tc.happens(t, l, ours, w, other)
			close(held)
			l.quiet(w)
			l.quiet(w)
			for _, id := range tc.told {
				if !slices.Contains(append(l.told(), l.untold()...), id) {
					t.Errorf("%s is not told: %v", id, l.told())
				}
			}
			if got := l.unwatched(); (len(got) > 0) != tc.unwatched {
				t.Errorf("told as unwatched: %v, want any: %t", got, tc.unwatched)
			}
		})
	}
}

// TestPuppetConfChanges: when puppet.conf changes, the agent looks at once where Puppet writes its reports now. If the
// agent cannot find this out, the node is not good.
func TestPuppetConfChanges(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(w *witness)
	}{
		{"another file of puppet apply", func(w *witness) { w.apply = w.file + ".apply" }},
		{"another file", func(w *witness) { w.file += ".other" }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			w, opt := witnesses(t)
			l.start(opt)
			l.quiet(w)
			looks := w.count()
			w.configure(t, func() { tc.change(w) })
			w.seen(looks + 1)
			file := w.file
			if w.apply != "" {
				file = w.apply
			}
			(&witness{file: file}).save(t, 100, 2, recent(t, foreignID(1)))
			l.line.wait("the run", func() bool { return slices.Contains(l.told(), foreignID(1)) })
		})
	}
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt, quick)
	l.end(l.job())
	l.quiet(w)
	w.configure(t, func() { w.fails = tutti.Errorf(tutti.CodeInvalid, "setting lastrunreport: it is not known") })
	l.line.wait("the node to be suspect", func() bool {
		got := l.view()
		return got.Stands == api.NodeSuspect && strings.Contains(got.Unnoted, "lastrunreport")
	})
	w.configure(t, func() { w.fails = nil })
	l.line.wait("the node to be good", func() bool { return l.view().Stands == api.NodeGood })
}
