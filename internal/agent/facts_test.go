package agent_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// facter implements agent.Facts, with the facts that the test has set.
type facter struct {
	mu      sync.Mutex
	text    string // of all facts
	found   agent.FactsNow
	dir     string
	watch   string
	count   int
	collect chan struct{} // gets one value for each collection
}

func (f *facter) Collect(dir string) error {
	f.mu.Lock()
	f.count++
	f.dir = dir
	f.found = agent.FactsNow{Facts: tutti.DigestOf([]byte(f.text)), Changed: []string{"ssh"}, Watch: []string{f.watch}, At: time.Now()}
	f.mu.Unlock()
	f.collect <- struct{}{}
	return nil
}

func (f *facter) Collected(dir string) (agent.FactsNow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if dir != f.dir {
		return agent.FactsNow{}, fs.ErrNotExist
	}
	return f.found, nil
}

// The method `collected` waits for the next collection.
func (f *facter) collected(t *testing.T) {
	t.Helper()
	select {
	case <-f.collect:
	case <-time.After(hang):
		t.Fatal("nothing is collected")
	}
}

func (f *facter) set(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = text
}

// factsTold returns the digests of facts in the log.
func (l *lab) factsTold() []tutti.Digest {
	var out []tutti.Digest
	for _, e := range l.fleet.Events() {
		if b, ok := e.Body.(*tutti.NodeFacts); ok {
			out = append(out, b.Facts)
		}
	}
	return out
}

// runWithFacts executes a run that collects facts, waits until the agent has collected the facts again, and returns the
// directory of the run.
func (l *lab) runWithFacts(f *facter) (dir string) {
	l.t.Helper()
	l.inRun(func(p *puppet) {
		dir = p.dir
		if err := os.WriteFile(filepath.Join(dir, "facts.json"), []byte(`{"a": 1}`), 0o600); err != nil {
			l.t.Error(err)
		}
	})
	f.collected(l.t)
	return dir
}

// TestFactsAreToldAfterARun: the agent reports facts after a run, after a change of a file of
// facts, and after its own start.
func TestFactsAreToldAfterARun(t *testing.T) {
	f := &facter{text: "of the run", watch: t.TempDir(), collect: make(chan struct{}, 100)}
	use := func(o *agent.Options) { o.Facts, o.Beat = f, 10*time.Millisecond }
	l := started(t, use)
	l.runWithFacts(f)
	l.line.until(wire.OpFacts, 1)
	f.set("role written")
	if err := os.WriteFile(filepath.Join(f.watch, "role.txt"), []byte("role=web\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.collected(t)
	l.line.until(wire.OpFacts, 2)
	l.kill()
	f.set("while no agent was there")
	l.start(use)
	f.collected(t)
	l.line.until(wire.OpFacts, 3)
	l.kill()
	told := l.factsTold()
	if len(told) == 0 || told[0] != tutti.DigestOf([]byte("of the run")) {
		t.Errorf("the log has %v", told)
	}
}

// TestFactsAreOfTheLastRunWhateverTheClockSays: the clock of the node was a day ahead during the first run, and was set
// right before the second run. The agent looks at the facts after the second run, and keeps the directory of this run.
func TestFactsAreOfTheLastRunWhateverTheClockSays(t *testing.T) {
	f := &facter{text: "of the run", watch: t.TempDir(), collect: make(chan struct{}, 100)}
	l := started(t, func(o *agent.Options) { o.Facts, o.Beat, o.KeepRuns = f, 10*time.Millisecond, 1 })
	first := l.runWithFacts(f)
	l.line.until(wire.OpFacts, 1) // from now on, nothing is written to the directory
	tomorrow := time.Now().Add(24 * time.Hour)
	if err := os.Chtimes(first, tomorrow, tomorrow); err != nil {
		t.Fatal(err)
	}
	last := l.runWithFacts(f)
	l.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != last {
		t.Errorf("facts are collected after run %s, want %s", filepath.Base(f.dir), filepath.Base(last))
	}
	if _, err := os.Stat(last); err != nil {
		t.Errorf("the directory of the last run: %v", err)
	}
}

// TestFactsBehindLinksAreWatched: the agent watches a directory that is a link, and files and directories behind links in a
// watched directory.
func TestFactsBehindLinksAreWatched(t *testing.T) {
	for name, changes := range map[string]string{
		"a directory that is a link":             "real/role.txt",
		"a file that is a link":                  "target",
		"a directory behind a link in a watched": "deep/role.txt",
		"a file that was missing":                "later.conf",
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := func(name string) string { return filepath.Join(root, name) }
			write := func(path, text string) {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Error(err)
				}
			}
			for _, err := range []error{
				os.Mkdir(path("real"), 0o700), os.Mkdir(path("deep"), 0o700), os.Symlink("real", path("facts.d")), os.Symlink(path("later.conf"), path("real/later")),
				os.Symlink(path("target"), path("real/linked.txt")), os.Symlink(path("deep"), path("real/deep")), os.Symlink(path("real"), path("deep/round")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			write(path("target"), "a=1\n")
			write(path("deep/role.txt"), "a=1\n")
			f := &facter{text: "of the run", watch: path("facts.d"), collect: make(chan struct{}, 100)}
			l := started(t, func(o *agent.Options) { o.Facts, o.Beat = f, 10*time.Millisecond })
			l.inRun(func(p *puppet) { write(filepath.Join(p.dir, "facts.json"), `{"a": 1}`) })
			f.collected(t)
			l.line.until(wire.OpFacts, 1)
			f.set("changed")
			write(path(changes), "role=web\n")
			f.collected(t)
			l.line.until(wire.OpFacts, 2)
		})
	}
}

// TestAFileOfTheFutureHidesNoChange: a file that was written while the clock was ahead does not hide later changes.
func TestAFileOfTheFutureHidesNoChange(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) time.Time {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return time.Unix(st.Ctim.Unix())
	}
	before := write("before")
	var future time.Time
	for future = write("future"); !future.After(before); future = write("future") { // the kernel's clock has a step of some milliseconds
	}
	if got := agent.Newest(filepath.Join(dir, "before"), before); !got.Equal(before) {
		t.Errorf("alone: %s, want %s", got, before)
	}
	if got := agent.Newest(dir, before); !got.Equal(before) {
		t.Errorf("beside a file of the future: %s, want %s", got, before)
	}
	if got := agent.Newest(dir, future); !got.Equal(future) {
		t.Errorf("at the file's own time: %s, want %s", got, future)
	}
}
