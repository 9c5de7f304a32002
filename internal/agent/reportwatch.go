package agent

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tutti-project/tutti"
)

// reportWatch counts the reports that arrive at Puppet's file. Each report replaces the previous one,
// so the agent can read only the last report. If the count differs from the number of reports read, a
// report was replaced before the agent read it.
type reportWatch struct {
	watcher *fsnotify.Watcher
	mark    string        // a file of the agent; when the agent touches this file, the event of the touch comes after all earlier events
	marked  chan struct{} // the event of the touched mark has come
	bell    chan struct{} // rings when the report or the path of the report may have changed
	settles *time.Timer   // rings the bell after a change of the file conf

	mu     sync.Mutex
	file   string
	confs  []string // the path of puppet.conf and, if this is a symbolic link, of its target
	moved  string   // the old name of the file that was last renamed in the report's directory
	writer string   // the process that saved the last report
	saves  int      // how often the writer saved it
	at     place

	followed int // the value of at.others when the method `follow` last watched the directories
}

// place is the point up to which the events were read.
type place struct {
	came   int // number of reports, each from a different run
	events int // number of events of the report or of a directory above it
	gaps   int // how often events were lost, or no watch was active
	others int // how often a directory above the report was created, moved or removed
}

// mostSaves is how often one run saves its report. Puppet saves the report before and after it
// sends the report to the Puppet Server.
const mostSaves = 2

// markWithin bounds the wait for the mark's event. Normally this event comes at
// once.
const markWithin = 30 * time.Second

// confSettles is the wait after a change of puppet.conf before the agent reads it. Editors and tools write a file in
// several steps.
const confSettles = time.Second

// newReportWatch returns a watch that follows no report yet. The function creates the file `mark`.
func newReportWatch(mark string, bell chan struct{}) (*reportWatch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &reportWatch{watcher: watcher, mark: mark, marked: make(chan struct{}, 1), bell: bell, at: place{gaps: 1}}
	w.settles = time.AfterFunc(time.Hour, func() { ring(bell) })
	w.settles.Stop()
	go w.read()
	return w, nil
}

func (w *reportWatch) close() {
	w.settles.Stop()
	w.watcher.Close()
}

// The method `read` reads the events until the watch is closed, so that the kernel's queue does not
// overflow.
func (w *reportWatch) read() {
	for {
		select {
		case e, open := <-w.watcher.Events:
			if !open {
				return
			}
			w.note(e)
		case _, open := <-w.watcher.Errors:
			if !open {
				return
			}
			w.missed()
			ring(w.bell)
		}
	}
}

// The method `missed` counts a moment at which events may have been lost.
func (w *reportWatch) missed() place {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at.gaps++
	return w.at
}

func (w *reportWatch) note(e fsnotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := filepath.Clean(e.Name)
	switch {
	case e.Name == "": // the kernel no longer watches a directory
		return
	case name == w.mark:
		if e.Has(fsnotify.Chmod) {
			ring(w.marked)
		}
		return
	case slices.Contains(w.confs, name):
		w.settles.Reset(confSettles)
		return
	case name == w.file && e.Has(fsnotify.Create):
		w.arrived()
	case name == w.file: // the report was removed, or written in place
	case strings.HasPrefix(w.file, name+string(filepath.Separator)):
		if !e.Has(fsnotify.Create) && !e.Has(fsnotify.Remove) && !e.Has(fsnotify.Rename) {
			return
		}
		w.at.others++
	default:
		if e.Has(fsnotify.Rename) && filepath.Dir(name) == filepath.Dir(w.file) {
			w.moved = name
		}
		return
	}
	w.at.events++
	ring(w.bell)
}

// The variable `temporary` matches Puppet's temporary name of a report: the day, the process id and
// a random part.
var temporary = regexp.MustCompile(`^\d{8}-(\d+)-[0-9a-z]+(-\d+)?$`)

// The method `arrived` counts a report. One process makes one run and saves its report twice, so the
// method counts two saves by one process as one report. The caller holds w.mu.
func (w *reportWatch) arrived() {
	writer := ""
	if rest, ok := strings.CutPrefix(w.moved, w.file); ok {
		if m := temporary.FindStringSubmatch(rest); m != nil {
			writer = m[1]
		}
	}
	w.moved = ""
	if writer == "" || writer != w.writer || w.saves == mostSaves {
		w.at.came++
		w.writer, w.saves = writer, 0
	}
	w.saves++
}

// The method `follow` watches the report's directory and all directories above it. The directories above
// are needed, because a directory that is moved away sends no event itself. A missing directory is watched
// when it is created. The directories of conf are watched, too. The result `others` identifies the set of
// directories.
func (w *reportWatch) follow(file, conf string) (others int, err error) {
	confs := []string{conf}
	if target, err := filepath.EvalSymlinks(conf); err == nil && target != conf {
		confs = append(confs, target)
	}
	w.mu.Lock()
	w.confs = confs
	again := file != w.file || w.followed != w.at.others
	if file != w.file {
		w.at.gaps++
	}
	others = w.at.others
	w.file, w.followed = file, others
	w.mu.Unlock()
	if again {
		for _, path := range w.watcher.WatchList() {
			_ = w.watcher.Remove(path) // the kernel may have removed the watch already
		}
	}
	had := w.watcher.WatchList()
	if !slices.Contains(had, w.mark) {
		if err := os.WriteFile(w.mark, nil, 0o600); err != nil {
			return others, err
		}
		if err := w.watcher.Add(w.mark); err != nil {
			return others, err
		}
	}
	for _, conf := range confs {
		_ = w.watcher.Add(filepath.Dir(conf)) // if there is no such directory, Puppet has its defaults
	}
	for _, dir := range above(file) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			break
		}
		if slices.Contains(had, dir) {
			continue
		}
		if err := w.watcher.Add(dir); err != nil {
			return others, err
		}
		if !again { // the directory is new, or the kernel has ended its watch
			w.mu.Lock()
			w.at.others++
			w.mu.Unlock()
		}
	}
	return others, nil //nolint:nilerr // a missing directory is followed when it is made
}

// The function `above` returns the directories above a file, beginning with the root.
func above(file string) []string {
	var out []string
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		out = append(out, dir)
		if dir == filepath.Dir(dir) {
			slices.Reverse(out)
			return out
		}
	}
}

// The method `reach` waits until the watch has read all events up to now, and returns the place.
func (w *reportWatch) reach(ctx context.Context) (place, error) {
	select {
	case <-w.marked: // drop the event of an earlier mark
	default:
	}
	if err := os.Chmod(w.mark, 0o600); err != nil {
		_ = w.watcher.Remove(w.mark) // the method `follow` makes another mark
		return place{}, err
	}
	timer := time.NewTimer(markWithin)
	defer timer.Stop()
	select {
	case <-w.marked:
	case <-ctx.Done():
		return place{}, context.Cause(ctx)
	case <-timer.C:
		_ = w.watcher.Remove(w.mark)
		return place{}, tutti.Errorf(tutti.CodeInternal, "the kernel has not reported the change of %s within %s", w.mark, markWithin)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at, nil
}
