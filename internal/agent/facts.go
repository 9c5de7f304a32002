package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// Facts collects the node's facts again after a run. The agent compares the new facts with the
// facts of the run's compile (docs/adr/0019-facts.md).
type Facts interface {
	// Collect begins a collection for an ended run with the order of that run. The argument dir
	// is the run's directory. If a collection for another run is going on, Collect ends it.
	Collect(dir string) error
	// Collected returns the result of the last collection for that run. Collected returns
	// fs.ErrNotExist if there is no result yet.
	Collected(dir string) (FactsNow, error)
}

// FactsNow is the result of a collection.
type FactsNow struct {
	Facts   tutti.Digest
	Changed []string  // names of the facts that differ from the facts of the run
	Watch   []string  // directories whose files are the sources of facts
	At      time.Time // when the collection ended
	Began   time.Time // when the collection began; zero if this is not known
}

const (
	// factsPatience is how long the agent waits for a collection before it begins
	// another one.
	factsPatience = 5 * time.Minute
	// factsSoon is how often the agent checks whether a collection has ended.
	factsSoon = 200 * time.Millisecond
	// maxWatched is the largest number of files that the agent looks at.
	maxWatched = 20_000
)

// collectFacts begins a collection for a run that has just ended.
func (a *Agent) collectFacts(dir string) {
	if a.opts.Facts == nil || a.knows().observed() != "" {
		return
	}
	if err := a.opts.Facts.Collect(dir); err != nil {
		a.opts.Logger.Debug("facts are not collected", "error", err) // the next run reports why, for example that Puppet is not installed
	}
	ring(a.collects)
}

// factsWatch tracks the node's facts after its last run.
type factsWatch struct {
	*Agent
	begun  bool      // this agent has begun a collection
	dir    string    // the directory of the last run
	asked  time.Time // when a collection began; zero if no collection is going on
	now    FactsNow  // the result of the last collection
	seen   uint64    // result of the function stamp for the watched files at the time of `now`
	late   bool      // a watched file was written during the collection
	rests  time.Time // do not look at the files before this time
	told   tutti.Digest
	toldOf string // the directory of the run for which the agent has sent the digest `told`
	said   string
}

// tellFacts reports the node's facts to the server until ctx ends. Runs never wait for
// tellFacts.
func (a *Agent) tellFacts(ctx context.Context) {
	if a.opts.Facts == nil {
		return
	}
	f, held := &factsWatch{Agent: a}, &inventory{Agent: a, sent: map[tutti.InventoryPart]sentPart{}, rests: map[tutti.InventoryPart]time.Time{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.collects: // a collection has begun
			f.begun, f.asked = true, time.Now()
		case <-a.tellAgain: // the server may not have the present facts
			f.toldOf = ""
		case <-timer.C:
		}
		f.look(time.Now())
		err := f.tell(ctx)
		if holds := held.tell(ctx, f.dir, f.now, time.Now()); errorText(holds) != held.said && ctx.Err() == nil {
			if held.said = errorText(holds); holds != nil {
				a.opts.Logger.Info("the server does not have the facts and catalog of this node for queries", "error", holds)
			}
		}
		if said := errorText(err); said != f.said && ctx.Err() == nil {
			if f.said = said; err != nil {
				a.opts.Logger.Info("the server does not know yet which facts the node has", "error", err)
			}
		}
		wait := a.opts.Beat
		if !f.asked.IsZero() {
			wait = min(wait, max(factsSoon, time.Since(f.asked)/8))
		}
		timer.Reset(wait)
	}
}

// The method `look` begins a collection if one is due, and reads the result of a collection that
// has ended.
func (f *factsWatch) look(now time.Time) {
	dir := f.lastWithFacts()
	if dir == "" || f.running() || f.knows().observed() != "" {
		return
	}
	if !f.instructed.Load() && now.Sub(f.knows().Started) < awayAfter { // perhaps the node is observed now
		return
	}
	if dir != f.dir {
		f.dir, f.now, f.seen, f.late = dir, FactsNow{}, 0, false
	}
	found, err := f.opts.Facts.Collected(dir)
	if err == nil && !found.At.Equal(f.now.At) {
		f.now, f.asked = found, time.Time{}
		var newest time.Time
		f.seen, newest = stamp(found.Watch, now)
		// If a file was written during the collection, the facts may be old. If the clock was set back, nobody knows
		// whether a file was written. In both cases collect again, but only once, because a fact itself may write to
		// a watched file.
		if f.late = !f.late && !found.Began.IsZero() && (!newest.Before(found.Began) || found.Began.After(now)); f.late {
			f.seen = 0
		}
	}
	switch {
	case !f.asked.IsZero() && now.Sub(f.asked) < factsPatience:
		return
	case !f.begun: // the machine may have changed while no agent ran
	case f.now.At.IsZero(), f.opts.FactsEvery > 0 && now.Sub(f.now.At) > f.opts.FactsEvery, f.now.At.After(now):
	case f.late, f.written(now):
	default:
		return
	}
	f.begun, f.asked = true, now
	if err := f.opts.Facts.Collect(dir); err != nil {
		f.opts.Logger.Debug("facts are not collected", "error", err)
	}
}

// The method `written` reports whether the files have changed since the last collection. Modules and external data
// may consist of many files. The method therefore looks at files for at most a fiftieth of the time.
func (f *factsWatch) written(now time.Time) bool {
	if now.Before(f.rests) {
		return false
	}
	began := time.Now()
	sum, _ := stamp(f.now.Watch, now)
	f.rests = now.Add(50 * time.Since(began))
	return sum != f.seen
}

func (f *factsWatch) running() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active != nil
}

// lastWithFacts returns the directory of the last ordered run that has ended and has collected facts.
// The method returns an empty string if no run has collected facts.
func (f *factsWatch) lastWithFacts() string {
	dirs, err := f.runDirs()
	if err != nil {
		return ""
	}
	for _, dir := range slices.Backward(dirs) {
		if hasFile(dir, factsFile) && !hasFile(dir, LocalFile) && !hasFile(dir, diffFile) && (hasFile(dir, resultFile) || hasFile(dir, sentFile)) {
			return dir
		}
	}
	return ""
}

// If the server does not have the present facts yet, the method `tell` reports them to the server.
func (f *factsWatch) tell(ctx context.Context) error {
	if f.now.Facts == "" || f.running() || !hasFile(f.dir, sentFile) || f.toldOf == f.dir && f.told == f.now.Facts {
		return nil
	}
	in := tutti.FactsSeen{Run: tutti.RunID(filepath.Base(f.dir)), Facts: f.now.Facts, Changed: f.now.Changed}
	_, err := call[struct{}](ctx, f.Agent, wire.OpFacts, in)
	if err == nil || final(err) { // a server of an earlier release does not know the message
		f.told, f.toldOf = f.now.Facts, f.dir
	}
	return err
}

// The function `stamp` computes a number from these directories and from the directories to which links in them lead.
// The number changes if somebody adds, changes or removes a file in one of these directories. The directories
// themselves may be links, files, or missing. The result `newest` is the time of the last change. A change whose time
// is in the future does not count for `newest`. The change was made while the clock was wrong, and its time would
// hide later changes.
func stamp(dirs []string, now time.Time) (sum uint64, newest time.Time) {
	h, n := fnv.New64a(), 0
	note := func(path string, stat func(string, *unix.Stat_t) error) (isDir bool) {
		var st unix.Stat_t
		if stat(path, &st) != nil { // the file does not exist, or was removed just now
			return false
		}
		at := time.Unix(st.Ctim.Unix())
		if at.After(newest) && !at.After(now) {
			newest = at
		}
		fmt.Fprintf(h, "%s %d %d %d\n", path, st.Ino, at.UnixNano(), st.Size)
		return st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	seen := map[string]bool{}
	walk := func(path string, e fs.DirEntry, err error) error {
		if n++; n > maxWatched {
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // the file was removed just now, or nobody may read it
		}
		if e.IsDir() {
			if seen[path] || slices.Contains([]string{".git", ".svn", ".hg"}, e.Name()) {
				return fs.SkipDir
			}
			seen[path] = true
		}
		note(path, unix.Lstat)
		if e.Type()&fs.ModeSymlink != 0 && note(path, unix.Stat) {
			dirs = append(dirs, path)
		}
		return nil
	}
	dirs = slices.Clone(dirs)
	for i := 0; i < len(dirs); i++ { // links add directories
		dir := dirs[i]
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		_ = filepath.WalkDir(dir, walk)
	}
	return h.Sum64(), newest
}
