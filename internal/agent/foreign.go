package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// Witness is what Puppet leaves of its last run, whoever started that.
type Witness interface {
	// ReportFile is where Puppet leaves its report, by rename. CodeNotFound: there is
	// no Puppet yet.
	ReportFile() (string, error)
	// LastReport reads that and judges the run. fs.ErrNotExist: there is none.
	LastReport(ctx context.Context, node tutti.NodeName) (run tutti.Foreign, report []byte, err error)
}

const (
	foreignDir = "foreign"
	seenFile   = "seen" // in it; the id of the run whose report was looked at last
	// foreignAgain is after how long what the server did not take is sent again.
	foreignAgain = 10 * time.Second
)

// seen is the content of seenFile.
type seen struct {
	Run tutti.RunID `json:"run"`
}

// heard is a foreign run in the outbox. It stays there when it was told: a server that was restored from a backup has
// forgotten it.
type heard struct {
	Foreign tutti.Foreign `json:"foreign"`
	Report  []byte        `json:"report"`
	Nth     int           `json:"nth,omitempty"` // later ones have more, whatever their clock said
	// Took is how long before it was seen the run had begun, see sees.
	Took time.Duration `json:"took,omitempty"`
	// Told is the server's epoch, as far as it was known, before this was told; nil: not told yet.
	Told *tutti.Epoch `json:"told,omitempty"`
}

// untold reports whether it is to be told to a server of this epoch. Nobody knows the epoch of a server of release
// 0.2.0: its number is zero.
func (h heard) untold(now tutti.Epoch) bool {
	return h.Told == nil || now.Number != 0 && *h.Told != now
}

// foreigns tells the server of runs that it did not order, other people's and local ones, until ctx ends. Nothing
// that runs of Tutti's do waits for it.
func (a *Agent) foreigns(ctx context.Context) {
	w := &watch{Agent: a, blind: true}
	if a.opts.Witness != nil {
		var err error
		if w.watcher, err = fsnotify.NewWatcher(); err != nil {
			a.opts.Logger.Error("runs that others start are not seen", "error", err)
			return
		}
		defer w.watcher.Close()
		w.events, w.errors = w.watcher.Events, w.watcher.Errors
	}
	again := time.NewTimer(foreignAgain)
	defer again.Stop()
	for {
		watches := w.follow()
		err := a.look(ctx, w.blind)
		w.blind = err != nil || !watches
		if said := errorText(err); said != w.said {
			w.said = said
			if err != nil {
				a.opts.Logger.Warn("the report of Puppet's last run is passed over", "error", err)
			}
		}
		again.Stop()
		if err := a.sendForeigns(ctx); err != nil && ctx.Err() == nil {
			a.opts.Logger.Warn("a foreign run is not told yet", "error", err)
			again.Reset(foreignAgain)
		}
		if !w.wait(ctx, again.C) {
			return
		}
	}
}

// watch waits for the report file to be another one.
type watch struct {
	*Agent
	watcher *fsnotify.Watcher // nil without a witness
	events  <-chan fsnotify.Event
	errors  <-chan error
	file    string
	dir     string // that is watched: the file's, or the nearest above it that is there
	said    string // why a report was passed over
	blind   bool   // a report may have been replaced by another one unseen since the last look
}

// follow watches the directory of the report file, and reports whether it does. Before Puppet's first run that
// is not there.
func (w *watch) follow() bool {
	if w.opts.Witness == nil {
		return false
	}
	file, err := w.opts.Witness.ReportFile()
	if err != nil {
		return false // after the next run of Tutti's it is asked again
	}
	w.file = file
	for {
		dir := nearest(filepath.Dir(file))
		if dir == w.dir && slices.Contains(w.watcher.WatchList(), dir) {
			return true
		}
		if w.dir != "" {
			_ = w.watcher.Remove(w.dir) // it may have gone by itself
		}
		w.dir = dir
		if err := w.watcher.Add(dir); err != nil {
			w.opts.Logger.Warn("runs that others start are not seen now", "error", err)
			return false
		}
	} // what was made meanwhile is there at the second look
}

// nearest is the directory itself, or the nearest above it that is there.
func nearest(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// wait returns when there may be something to tell; false: ctx has ended.
func (w *watch) wait(ctx context.Context, again <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case <-w.lookAgain:
			return true
		case e := <-w.events:
			if w.file == e.Name || strings.HasPrefix(w.file, e.Name+string(filepath.Separator)) {
				return true
			}
		case err := <-w.errors: // events were lost
			w.opts.Logger.Warn("runs that others start may not be seen at once", "error", err)
			w.blind = true
			return true
		}
	}
}

// look puts the run of Puppet's last report into the outbox, if it is foreign and
// was not looked at before. blind says that others may have ended before it, unseen.
func (a *Agent) look(ctx context.Context, blind bool) error {
	if a.opts.Witness == nil {
		return nil
	}
	run, report, err := a.opts.Witness.LastReport(ctx, a.opts.Node)
	if errors.Is(err, fs.ErrNotExist) || tutti.CodeOf(err) == tutti.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	id := run.Result.Run
	at := filepath.Join(a.foreignDir(), seenFile)
	last, err := readSealed[seen](at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.opts.Logger.Warn("which report was told last is not known: the one that is there is told again", "error", err)
	}
	if last.Run == id {
		return nil
	}
	if _, err := os.Stat(a.runDir(id)); errors.Is(err, fs.ErrNotExist) { // else it is one of ours
		run.Unwatched = blind
		if err := a.hear(run, report); err != nil {
			return err
		}
		a.opts.Logger.Info("a run that Tutti did not start has ended", "run", id, "outcome", run.Result.Outcome, "reason", run.Result.Reason)
	}
	return writeSealed(at, seen{id})
}

// hear puts a run into the outbox.
func (a *Agent) hear(run tutti.Foreign, report []byte) error {
	before, err := a.outbox()
	if err != nil {
		return err
	}
	nth := 1
	if len(before) > 0 {
		nth += before[len(before)-1].Nth
	}
	took := a.sees(&run)
	return writeSealed(a.heardFile(run.Result.Run), heard{Foreign: run, Report: report, Nth: nth, Took: took})
}

func (a *Agent) foreignDir() string { return filepath.Join(a.opts.Dir, foreignDir) }

func (a *Agent) heardFile(id tutti.RunID) string {
	return filepath.Join(a.foreignDir(), string(id)+".json")
}

// outbox returns what it has in the order in which it came: by its clock, a run of the
// future would push out all that come behind it. What cannot be read is let go.
func (a *Agent) outbox() ([]heard, error) {
	files, err := filepath.Glob(filepath.Join(a.foreignDir(), "*.json"))
	if err != nil {
		return nil, err
	}
	var all []heard
	for _, file := range files {
		h, err := readSealed[heard](file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was told meanwhile
		}
		if err != nil {
			a.opts.Logger.Error("a foreign run is lost", "error", err)
			if err := os.Remove(file); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y heard) int {
		return cmp.Or(cmp.Compare(x.Nth, y.Nth), x.Foreign.Result.StartedAt.Compare(y.Foreign.Result.StartedAt))
	})
	return all, nil
}

// sendForeigns tells what the outbox has and this server was not told, first those that disturb, the oldest first: the
// server takes one each ten seconds. What the server would not keep goes: it keeps the latest few, and the latest of
// each kind by which a node is judged.
func (a *Agent) sendForeigns(ctx context.Context) error {
	now := a.epoch() // before it is told: what a server of before a restore has taken is told again
	all, err := a.outbox()
	if err != nil {
		return err
	}
	var latest []*tutti.RunForeign
	for _, h := range slices.Backward(all) { // the one that came last is the latest, whatever the clock says
		latest = append(latest, &tutti.RunForeign{Foreign: h.Foreign})
	}
	stays := retain.Stay(latest)
	var first, then []heard
	for i, h := range all {
		switch {
		case !stays[len(all)-1-i]:
			if err := os.Remove(a.heardFile(h.Foreign.Result.Run)); err != nil {
				return err
			}
		case !h.untold(now):
		case h.Foreign.Disturbs():
			first = append(first, h)
		default:
			then = append(then, h)
		}
	}
	for _, h := range append(first, then...) {
		if err := a.tellForeign(ctx, h, now); err != nil {
			return err
		}
	}
	return nil
}

// tellForeign tells one, and notes to whom.
func (a *Agent) tellForeign(ctx context.Context, h heard, now tutti.Epoch) error {
	taken, err := a.sendForeign(ctx, h)
	if err != nil {
		return err
	}
	file := a.heardFile(h.Foreign.Result.Run)
	a.forgets(h.Foreign.Result.Run)
	if !taken {
		return os.Remove(file)
	}
	h.Told = &now
	return writeSealed(file, h)
}

// epoch is that of the server as far as this node has seen it; the zero one if nobody knows.
func (a *Agent) epoch() tutti.Epoch {
	kept, err := readSealed[begun](filepath.Join(a.opts.Dir, BegunFile))
	if err != nil {
		return tutti.Epoch{} // loadBegun says what is wrong
	}
	return kept.Server.Epoch
}

// sendForeign reports whether the server has taken it, false: it never will. It returns an error if sending again may
// help.
func (a *Agent) sendForeign(ctx context.Context, h heard) (taken bool, err error) {
	message, err := tutti.EncodeForeign(a.asNews(h), h.Report)
	if err != nil {
		return false, err
	}
	_, err = a.opts.Bus.Call(ctx, tutti.OpForeign, message) // in chunks, if it is large
	if final(err) {
		a.opts.Logger.Error("the server refused a foreign run", "run", h.Foreign.Result.Run, "error", err)
		return false, nil
	}
	return err == nil, err
}
