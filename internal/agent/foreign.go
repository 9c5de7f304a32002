package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/wire"
)

// Witness reads the report of Puppet's last run, whoever started the run.
type Witness interface {
	// ReportFiles returns the paths at which Puppet writes its report by rename: the path of `puppet agent`, and the path
	// of `puppet apply` if it differs. The paths depend on the file conf. ReportFiles returns CodeNotFound if Puppet is
	// not installed yet.
	ReportFiles() (files []string, conf string, err error)
	// LastReport reads one of these files and judges the run. LastReport returns fs.ErrNotExist if
	// there is no report.
	LastReport(ctx context.Context, node tutti.NodeName, file string) (run tutti.Foreign, report []byte, err error)
}

const (
	foreignDir = "foreign"
	seenFile   = "seen" // file in foreignDir with the id of the last run whose report the agent looked at
	// foreignAgain is the first wait before the agent resends a run that the server did not accept.
	foreignAgain = 10 * time.Second
	// foreignMost is the longest wait before the agent resends a refused foreign run.
	foreignMost = 5 * time.Minute

	markFile   = "mark" // file in foreignDir
	reportFile = "report.json"
)

// The type `seen` is the content of seenFile.
type seen struct {
	Run tutti.RunID `json:"run"`
}

// The type `heard` is a foreign run in the outbox. The run stays there after the agent has reported it, because a later
// restore of the server from a backup may lose the report.
type heard struct {
	Foreign tutti.Foreign `json:"foreign"`
	Report  []byte        `json:"report"`
	Nth     int           `json:"nth,omitempty"` // a run that came later has a higher number, regardless of its clock
	// Took is the time between the beginning of the run and the moment when the agent saw it (see the
	// method `sees`).
	Took time.Duration `json:"took,omitempty"`
	// Told is the server's epoch, as last known before the agent reported the run. Told is
	// nil if the agent has not reported the run yet.
	Told *tutti.Epoch `json:"told,omitempty"`
}

// The method `untold` reports whether the agent must report the run to a server of this epoch. For
// a server of release 0.2.0, the epoch is unknown and its number is zero.
func (h heard) untold(now tutti.Epoch) bool {
	return h.Told == nil || now.Number != 0 && *h.Told != now
}

// The method `foreigns` reports to the server the runs that the server did not order, until ctx ends. The reported
// runs are foreign and local runs. After its first look, foreigns closes the channel `looked`. Only the first ordered
// run waits for this look.
func (a *Agent) foreigns(ctx context.Context, looked chan<- struct{}) {
	w := newWatches(a)
	defer w.close()
	again := time.NewTimer(0)
	defer again.Stop()
	pause, due := foreignAgain, time.Time{}
	for tells := true; ; {
		heard, err := w.look(ctx)
		if looked != nil {
			close(looked)
			looked = nil
		}
		if said := errorText(err); said != w.said {
			w.said = said
			if err != nil {
				a.opts.Logger.Warn("the report of Puppet's last run is passed over", "error", err)
			}
		}
		failed := w.failed
		if w.failed && ctx.Err() == nil {
			w.cannotNote(cmp.Or(err, errNotNoted))
		}
		if (tells || heard) && a.isTaken() { // if the server does not accept this machine, the agent reports later
			locals := a.unheard.none() // read this before sending, because a local run may end in the meantime
			told, err := a.sendForeigns(ctx)
			if err == nil && locals {
				if a.unheard.told() {
					ring(a.beat)
				}
			}
			if failed = failed || err != nil; err != nil && ctx.Err() == nil {
				a.opts.Logger.Warn("a foreign run is not reported yet", "error", err)
			}
			if told > 0 || err == nil {
				pause, due = foreignAgain, time.Time{}
			}
		}
		if !failed && due.IsZero() {
			w.cannotNote(nil) // first report the runs; the node must not look good before the server has them
		}
		if failed && due.IsZero() {
			due = time.Now().Add(pause)
		}
		if !due.IsZero() {
			again.Reset(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			tells, due, pause = true, time.Time{}, min(2*pause, foreignMost)
		case <-a.lookAgain:
			tells = true
		case <-w.bell:
			tells = false
		}
	}
}

// errNotNoted is the reason if the agent could not complete its last look, and this look has
// returned no error.
var errNotNoted = errors.New("the report of Puppet's last run could not be looked at")

// cannotNote sets the reason why the agent cannot store runs that the server did not order. A nil error means that the
// agent has stored all these runs. If the reason changes, the agent reports the new reason to the server at once.
func (w *watches) cannotNote(err error) {
	w.mu.Lock()
	changed := errorText(err) != errorText(w.unnoted)
	w.unnoted = err
	w.mu.Unlock()
	if changed {
		ring(w.beat)
	}
}

// The type `watch` compares the reports that arrived at one file with the reports that the agent
// has read.
type watch struct {
	*Agent
	name    string       // distinguishes the files of this watch from the files of other watches
	reports *reportWatch // nil if the agent could not make the watch yet
	bell    chan struct{}
	file    string
	conf    string // a change of this file rings the bell, too
	failed  bool   // the agent could not complete the last look
	// The function `leaves` reports whether a run of Tutti, whose directory is `dir`, writes its
	// report to this file.
	leaves func(dir string) bool

	// The field `done` is the place up to which the agent has dealt with all reports.
	done  place
	since time.Time // the start of the last look during which no report arrived
	last  tutti.RunID
	noted bool // the id in `last` is also on disk
	// The field `read` contains the runs whose reports the agent has read after the place `done`.
	read map[tutti.RunID]bool
	// The field `ours` contains the runs of Tutti whose reports count as arrived. Some of these runs
	// are also in `assumed`: the agent has not read their reports.
	ours, assumed map[tutti.RunID]bool
}

// noReport is the id of a report that cannot be read.
const noReport tutti.RunID = "unreadable"

// The method `open` begins to watch.
func (w *watch) open() error {
	reports, err := newReportWatch(filepath.Join(w.foreignDir(), markFile+w.name), w.bell)
	if err != nil {
		return tutti.Wrap("", err, "runs that others start are not seen")
	}
	w.reports = reports
	w.begin()
	return nil
}

func (w *watch) close() {
	if w.reports != nil {
		w.reports.close()
	}
}

// The method `begin` continues where the previous agent ended.
func (w *watch) begin() {
	last, err := readSealed[seen](filepath.Join(w.foreignDir(), seenFile+w.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.opts.Logger.Warn("the last reported run is not known: the agent reports the present report again", "error", err)
	}
	w.last, w.noted = last.Run, err == nil || errors.Is(err, fs.ErrNotExist)
	w.read, w.ours, w.assumed = map[tutti.RunID]bool{}, map[tutti.RunID]bool{}, map[tutti.RunID]bool{}
	for _, run := range w.left() {
		w.ours[run] = true
	}
}

// sighting is what a look has found in the report file.
type sighting struct {
	id     tutti.RunID // empty if there is no file; noReport if it cannot be read
	run    tutti.Foreign
	report []byte
	fresh  bool // no earlier look has found this report
}

// If another report arrives during a look, the look begins another round. A look has at most
// `looks` rounds. The next look then continues.
const looks = 4

// The method `look` reads Puppet's last report. If the run of this report is foreign and new, the method puts the run
// into the outbox. If reports were replaced before the agent read them, the method also adds one unknown run. The
// result `heard` is true if the agent has something to report.
func (w *watch) look(ctx context.Context) (heard bool, err error) {
	w.failed = false
	if w.reports == nil {
		if err := w.open(); err != nil {
			w.failed = true
			return false, err
		}
	}
	var found []sighting // fresh reports, in order of arrival
	for round := 1; ; round++ {
		began := time.Now()
		before, beforeErr := w.reach(ctx)
		last, err := w.sight(ctx)
		after, afterErr := w.reach(ctx)
		if ctx.Err() != nil {
			return false, nil //nolint:nilerr // the agent ends
		}
		if beforeErr != nil || afterErr != nil {
			before = w.reports.missed()
			after, err, w.failed = before, errors.Join(beforeErr, afterErr, err), true
		}
		if last.fresh {
			found = append(slices.DeleteFunc(found, func(s sighting) bool { return s.id == last.id }), last)
		}
		if before == after {
			heard, settleErr := w.settle(found, last, after, began)
			w.failed = w.failed || settleErr != nil
			return heard, errors.Join(err, settleErr)
		}
		if round == looks {
			heard, err := w.take(found, nil)
			w.failed = w.failed || err != nil
			return heard, err
		}
	}
}

// The method `reach` watches the directories of the report file and returns the place up to which
// it has read the events.
func (w *watch) reach(ctx context.Context) (place, error) {
	for range looks {
		others, err := w.reports.follow(w.file, w.conf)
		if err != nil {
			return place{}, err
		}
		at, err := w.reports.reach(ctx)
		if err != nil || at.others == others {
			return at, err
		}
	}
	return place{}, tutti.Errorf(tutti.CodeUnavailable, "the directories of %s changed while the agent looked at them", w.file)
}

// The method `sight` reads the present report.
func (w *watch) sight(ctx context.Context) (sighting, error) {
	run, report, err := w.opts.Witness.LastReport(ctx, w.opts.Node, w.file)
	switch {
	case errors.Is(err, fs.ErrNotExist) || tutti.CodeOf(err) == tutti.CodeNotFound:
		return sighting{}, nil
	case err != nil:
		return sighting{id: noReport}, err
	}
	id := run.Result.Run
	return sighting{id: id, run: run, report: report, fresh: id != w.last && !w.read[id]}, nil
}

// The method `take` puts the foreign runs of `found` into the outbox, if they are not there yet.
// The argument `unwatched` is the id of a run. Other runs may have ended unseen before that run.
func (w *watch) take(found []sighting, unwatched *tutti.RunID) (heard bool, err error) {
	for _, one := range found {
		if !w.isOurs(one.id) {
			one.run.Unwatched = unwatched != nil && *unwatched == one.id
			isNew, err := w.hearOnce(one.run, one.report)
			if err != nil {
				return heard, err
			}
			heard = heard || isNew
		}
		w.read[one.id] = true
	}
	return heard, nil
}

// The method `settle` completes a look during which no report arrived. The argument `last` is the present report. The
// method first writes the foreign runs to disk and then updates the watch. If writing fails, the next look finds these
// runs again.
func (w *watch) settle(found []sighting, last sighting, at place, began time.Time) (heard bool, err error) {
	why, passed := w.unseen(found, last, at)
	var by *tutti.RunID // this foreign run also reports that other runs may have ended unseen
	if why != "" && last.fresh && !w.isOurs(last.id) && last.run.Result.StartedAt.After(w.since) && !w.isHeard(last.id) {
		by = &last.id
		w.opts.Logger.Warn("other runs may have ended before this run, and the agent has not seen their reports", "because", why, "run", last.id)
	}
	if heard, err = w.take(found, by); err != nil {
		return heard, err
	}
	if why != "" && by == nil {
		if err := w.hearUnseen(why); err != nil {
			return heard, err
		}
		heard = true
	}
	for run := range w.read {
		w.ours[run] = true
	}
	for _, run := range passed {
		w.ours[run], w.assumed[run] = true, true
	}
	delete(w.assumed, last.id)
	maps.DeleteFunc(w.ours, func(run tutti.RunID, _ bool) bool { return !w.isOurs(run) })
	w.noted = w.noted && last.id == w.last
	w.done, w.since, w.last = at, began, last.id
	clear(w.read)
	if w.noted {
		return heard, nil
	}
	if err := writeSealed(filepath.Join(w.foreignDir(), seenFile+w.name), seen{last.id}); err != nil {
		return heard, err
	}
	w.noted = true
	return heard, nil
}

// The method `unseen` returns the reason to believe that a run has ended and no look has read its report. The reason
// is empty if all reports were read. The runs in `passed` are our runs whose reports arrived and were not read.
func (w *watch) unseen(found []sighting, last sighting, at place) (why string, passed []tutti.RunID) {
	switch {
	case at.others != w.done.others && w.done.gaps > 0 && (w.last != "" || last.id != ""):
		return "the directory of the report was replaced", nil
	case at.gaps != w.done.gaps && last.id != w.last:
		return "the agent did not watch the report for some time", nil
	case last.fresh && at.came == w.done.came: // somebody has changed the report without a rename
		return "the report has changed, but no report has arrived", nil
	}
	missing := at.came - w.done.came
	for run := range w.read {
		if !w.assumed[run] {
			missing--
		}
	}
	for _, one := range found {
		if !w.assumed[one.id] {
			missing--
		}
	}
	if last.id == w.last && last.id != "" && last.id != noReport { // the same run saved its report once more
		missing--
	}
	for _, run := range w.left() { // the agent knows the results of these runs without reading these reports
		if missing > 0 && !w.ours[run] && !w.read[run] && !slices.ContainsFunc(found, func(s sighting) bool { return s.id == run }) {
			passed = append(passed, run)
			missing--
		}
	}
	if missing > 0 {
		why = "a report arrived but was not read"
	}
	return why, passed
}

// The method `left` returns our runs that are known to have left a report in this file.
func (w *watch) left() []tutti.RunID {
	dirs, err := w.runDirs()
	if err != nil {
		return nil
	}
	var out []tutti.RunID
	for _, dir := range dirs {
		if hasFile(dir, reportFile) && w.leaves(dir) {
			out = append(out, tutti.RunID(filepath.Base(dir)))
		}
	}
	return out
}

func (w *watch) isOurs(id tutti.RunID) bool {
	if id == "" || id == noReport {
		return false
	}
	_, err := os.Stat(w.runDir(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// isHeard reports whether a run is in the outbox. The agent may have reported this run already.
func (a *Agent) isHeard(run tutti.RunID) bool {
	_, err := readSealed[heard](a.heardFile(run))
	return err == nil
}

// hearOnce puts a run into the outbox if it is not there yet.
func (a *Agent) hearOnce(run tutti.Foreign, report []byte) (isNew bool, err error) {
	if a.isHeard(run.Result.Run) {
		return false, nil
	}
	if err := a.hear(run, report); err != nil {
		return false, err
	}
	a.opts.Logger.Info("a run that Tutti did not start has ended", "run", run.Result.Run, "outcome", run.Result.Outcome, "reason", run.Result.Reason)
	return true, nil
}

// hearUnseen puts an unknown run into the outbox. The agent knows only that such a run may have
// ended. The new entry also stands for earlier unknown runs, so the method removes the entries of
// unknown runs that are not reported yet.
func (a *Agent) hearUnseen(why string) error {
	before, err := a.outbox()
	if err != nil {
		return err
	}
	run, report, err := unseenRun(a.opts.Node, time.Now().UTC())
	if err != nil {
		return err
	}
	if err := a.hear(run, report); err != nil {
		return err
	}
	a.opts.Logger.Warn("a run may have ended here, and the agent has not seen its report", "because", why, "run", run.Result.Run)
	for _, h := range before {
		if h.Told == nil && h.Foreign.Environment == "" && h.Foreign.Puppet == "" && h.Foreign.Unwatched {
			if err := os.Remove(a.heardFile(h.Foreign.Result.Run)); err != nil {
				return err
			}
		}
	}
	return nil
}

// unseenRun returns an unknown run. The function invents the id and the report of this run.
func unseenRun(node tutti.NodeName, at time.Time) (tutti.Foreign, []byte, error) {
	id := tutti.RunID(uuid.NewString())
	report, err := json.Marshal(map[string]any{
		"host": node, "time": at, "transaction_uuid": id, "status": "unknown",
		"logs": []map[string]any{{"level": "warning", "source": "Tutti", "time": at, "message": "Tutti's agent has not seen a report that Puppet left here: the next report replaced it, somebody removed it, or it cannot be read. " +
			"Nobody knows what that run did."}},
	})
	return tutti.Foreign{
		Result: tutti.Result{Run: id, Outcome: tutti.Unchanged, StartedAt: at, EndedAt: at, Report: tutti.DigestOf(report)}, Unwatched: true,
	}, report, err
}

// The method `hear` puts a run into the outbox.
func (a *Agent) hear(run tutti.Foreign, report []byte) error {
	a.hearing.Lock()
	defer a.hearing.Unlock()
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

// outbox returns the runs in the outbox in order of arrival. The runs are not sorted by their own
// times. If they were, one run with a time in the future would push all later runs out of the
// outbox. The method drops runs that it cannot read.
func (a *Agent) outbox() ([]heard, error) {
	files, err := filepath.Glob(filepath.Join(a.foreignDir(), "*.json"))
	if err != nil {
		return nil, err
	}
	var all []heard
	for _, file := range files {
		h, err := readSealed[heard](file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent has reported this run in the meantime
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

// sendForeigns reports the runs of the outbox that this server does not know. The server takes only one
// run in ten seconds. The agent therefore first sends the runs that may have harmed the node, the
// oldest first. The server keeps only the latest few runs, and the latest run of each kind that decides
// whether a node is good. The agent removes all other runs from the outbox.
func (a *Agent) sendForeigns(ctx context.Context) (told int, err error) {
	now := a.epoch() // read the epoch before sending: if the server is restored in the meantime, the agent sends these runs again
	all, err := a.outbox()
	if err != nil {
		return 0, err
	}
	var latest []*tutti.RunForeign
	for _, h := range slices.Backward(all) { // the run that arrived last is the latest, regardless of its clock
		latest = append(latest, &tutti.RunForeign{Foreign: h.Foreign})
	}
	stays := retain.Stay(latest)
	var first, then []heard
	for i, h := range all {
		switch {
		case !stays[len(all)-1-i]:
			if err := os.Remove(a.heardFile(h.Foreign.Result.Run)); err != nil {
				return 0, err
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
			return told, err
		}
		told++
	}
	return told, nil
}

// tellForeign reports one run, and notes the epoch of the server that got the run.
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

// The method `epoch` returns the last epoch of the server that this node has seen. The epoch is
// zero if the node has seen none.
func (a *Agent) epoch() tutti.Epoch {
	kept, err := readSealed[begun](filepath.Join(a.opts.Dir, BegunFile))
	if err != nil {
		return tutti.Epoch{} // loadBegun reports the error
	}
	return kept.Server.Epoch
}

// sendForeign reports one run. The result `taken` is true if the server has taken the run, and false if the server will
// never take it. An error means that the agent may try again.
func (a *Agent) sendForeign(ctx context.Context, h heard) (taken bool, err error) {
	message, err := wire.EncodeForeign(a.asNews(h), h.Report)
	if err != nil {
		return false, err
	}
	_, err = a.opts.Bus.Call(ctx, wire.OpForeign, message) // a large message is sent in chunks
	if final(err) {
		a.opts.Logger.Error("the server refused a foreign run", "run", h.Foreign.Result.Run, "error", err)
		return false, nil
	}
	return err == nil, err
}
