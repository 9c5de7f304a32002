package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/report"
	"github.com/tutti-project/tutti/wire"
)

const (
	resultFile  = "result.json"
	sentFile    = "sent"
	toldFile    = "told.json"
	publishFile = "publish.jsonl"
)

// parts are the files that belong to a run's result. The result names them, or the agent sends them before the result.
// These files are on disk before the result.
var parts = []string{answersFile, gateFile, publishFile, "report.json", "log.jsonl"}

// The type `ended` is the content of result.json. The file contains the result, and the digests
// that the other files had when the agent wrote the result.
type ended struct {
	Result tutti.Result            `json:"result"`
	Parts  map[string]tutti.Digest `json:"parts"`
}

// digests returns the digests of all parts that can be read.
func digests(dir string) map[string]tutti.Digest {
	out := map[string]tutti.Digest{}
	for _, name := range parts {
		if got, err := excerpt.Digest(filepath.Join(dir, name)); err == nil {
			out[name] = got
		}
	}
	return out
}

// readResult reads the result of a run. If one of the parts has changed since, the record is
// unreliable, and the outcome is not good.
func readResult(dir string, run tutti.RunID) tutti.Result {
	kept, err := readSealed[ended](filepath.Join(dir, resultFile))
	if err != nil {
		return over(failed(run, tutti.BecauseMachinery, err))
	}
	now := digests(dir)
	for _, name := range parts {
		if kept.Parts[name] != now[name] {
			err := tutti.Errorf(tutti.CodeInternal, "%s is damaged: it has changed since the run ended", filepath.Join(dir, name))
			kept.Result = unrecorded(kept.Result, err)
		}
	}
	return kept.Result
}

// The method `flush` sends the outbox. For each ended run, the method first sends the values that the
// run published while the server was away. Then the method sends the result with report, log and
// record.
func (a *Agent) flush(ctx context.Context) error {
	dirs, err := a.runDirs()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if !hasFile(dir, resultFile) || hasFile(dir, sentFile) || hasFile(dir, LocalFile) {
			continue
		}
		if err := a.sendRun(ctx, dir); err != nil {
			return fmt.Errorf("send the result of %s: %w", filepath.Base(dir), err)
		}
	}
	return a.tidy(dirs)
}

// The type `told` is the content of toldFile. The file contains what the agent sends to the server
// about a run. The file is on disk before the agent sends its content. If the answer gets lost, the
// agent sends the same text again.
type told struct {
	Result  tutti.Result `json:"result"`
	Refused []string     `json:"refused,omitempty"` // keys whose last value the server has refused
}

func (a *Agent) sendRun(ctx context.Context, dir string) error {
	run := tutti.RunID(filepath.Base(dir))
	ended := readResult(dir, run)
	tells, err := readSealed[told](filepath.Join(dir, toldFile))
	again := err == nil
	if !again {
		tells = told{Result: ended}
	}
	switch err := a.sendPublished(ctx, dir, &tells, again); {
	case err == nil:
	case !errors.Is(err, errDamaged) && !a.hopeless(run, err):
		return err
	case !again: // sending again cannot help, so change the result; if the agent has sent the result before, the sent result already has this change
		tells.Result = unrecorded(tells.Result, err)
	}
	out := wire.Ended{Result: tells.Result}
	out.Report, out.Log, out.Record = "", "", ""
	if err := a.attach(ctx, dir, tells.Refused, &out); err != nil {
		return err
	}
	tells.Result = out.Result
	if hasFile(dir, publishFile) || out.Outcome != ended.Outcome { // without toldFile, the next try would send a different text
		if err := writeSealed(filepath.Join(dir, toldFile), tells); err != nil {
			return err
		}
	}
	err = a.sendResult(ctx, out)
	if err != nil && !a.hopeless(run, err) {
		return err
	}
	if err != nil {
		// The server will never accept the result. Keep the result for people, and report this to
		// the server. Without a report of this loss, the job would wait for the result.
		a.opts.Logger.Error("the server refused a result", "run", run, "error", err)
		if again := a.sendResult(ctx, refused(run, err.Error())); again != nil && !a.hopeless(run, again) {
			return again
		}
	}
	return writeSealed(filepath.Join(dir, sentFile), map[string]string{"error": errorText(err)})
}

// sendAgain puts a result back into the outbox. The server had the result before, and asks for it
// again because the server was restored from a backup. If the server refused the result before,
// sendAgain reports the refusal once more.
func (a *Agent) sendAgain(ctx context.Context, dir string, run tutti.RunID) error {
	// If the file cannot be read, treat the result as not refused. The server will decide again
	// whether it accepts the result.
	if why := Refused(dir); why != "" {
		return tutti.Wrap("", a.sendResult(ctx, refused(run, why)), "the server waits for the result of run %s, but refuses the report that the result is lost", run)
	}
	a.opts.Logger.Warn("the server has lost the result of a run; the agent sends it again", "run", run)
	if err := os.Remove(filepath.Join(dir, toldFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(filepath.Join(dir, sentFile))
}

func (a *Agent) sendResult(ctx context.Context, out wire.Ended) error {
	raw, err := out.Encode()
	if err != nil {
		return err
	}
	_, err = a.call(ctx, wire.OpResult, raw)
	return err
}

// The function `over` sets the times in the result of a run that had no process: the run begins
// and ends now.
func over(r tutti.Result) tutti.Result {
	r.StartedAt = time.Now().UTC()
	r.EndedAt = r.StartedAt
	return r
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The function `final` reports whether it is useless to send the request again.
func final(err error) bool {
	switch tutti.CodeOf(err) {
	case tutti.CodeInvalid, tutti.CodeRefused, tutti.CodeNotFound:
		return true
	default:
		return false
	}
}

// The method `attach` adds the log, the record and the report to the result. The method encloses
// small parts, and sends large parts now as blobs. If a part cannot be read or the server refuses
// the part, the method leaves the part out, because the outcome matters more.
func (a *Agent) attach(ctx context.Context, dir string, refused []string, out *wire.Ended) error {
	parts := []struct {
		name string
		read func() ([]byte, error)
		to   *tutti.Digest
	}{
		{"log", func() ([]byte, error) { return a.readLog(dir) }, &out.Log},
		{"record", func() ([]byte, error) { return a.record(dir, refused) }, &out.Record},
		{"report", func() ([]byte, error) { return readReport(dir, report.Max) }, &out.Report},
	}
	room := wire.MaxEnclosed
	for _, p := range parts {
		raw, err := p.read()
		if err != nil && p.to == &out.Record && out.Outcome.Good() && !errors.Is(err, fs.ErrNotExist) {
			out.Result = unrecorded(out.Result, err)
		}
		switch {
		case err != nil || len(raw) == 0:
		case len(raw) <= room:
			room -= len(raw)
			*p.to, out.Enclosed = tutti.DigestOf(raw), append(out.Enclosed, raw)
		default:
			if *p.to, err = a.sendBlob(ctx, raw); err != nil && !a.hopeless(out.Run, err) {
				return err
			}
			if err != nil && p.to == &out.Record && out.Outcome.Good() {
				out.Result = unrecorded(out.Result, err)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.opts.Logger.Error("a part of a result is left out", "run", out.Run, "part", p.name, "error", err)
		}
	}
	return nil
}

// If the log of a run is long, the agent sends only its first maxLog bytes and its last maxLog
// bytes.
const maxLog = 16 << 20

// readLog returns the log of a run in the form in which it is sent. The whole log stays in the run's
// directory.
func (a *Agent) readLog(dir string) ([]byte, error) {
	path := filepath.Join(dir, "log.jsonl")
	return excerpt.Ends(path, maxLog, func(bytes int64) []byte {
		line, _ := json.Marshal(map[string]any{ // encoding a text and a number never fails
			"t": modified(path).UTC(), "level": "warning", "source": "Tutti",
			"message": fmt.Sprintf("%d bytes of this log were cut out here; the whole log is in %s on %s", bytes, path, a.opts.Node),
		})
		return line
	})
}

// readReport reads the report of a run. If the report has more than `most` bytes, readReport leaves out the report's
// messages. The left-out messages are also in the log.
func readReport(dir string, most int64) ([]byte, error) {
	return excerpt.With(filepath.Join(dir, "report.json"), most, report.Keep)
}

// record encodes the record of a run, without the published keys in `refused`. The method returns
// fs.ErrNotExist if the run never began.
func (a *Agent) record(dir string, refused []string) ([]byte, error) {
	spec, err := a.opts.Runner.Spec(dir)
	if err != nil {
		return nil, err
	}
	book, err := openBook(dir)
	if err != nil {
		return nil, err
	}
	defer book.close()
	record, err := book.record(spec)
	if err != nil {
		return nil, err
	}
	for _, key := range refused {
		delete(record.Published, key)
	}
	return json.Marshal(record)
}

func (a *Agent) sendBlob(ctx context.Context, content []byte) (tutti.Digest, error) {
	reply, err := a.opts.Bus.Call(ctx, wire.OpBlobPut, content)
	if err != nil {
		return "", err
	}
	var stored wire.BlobStored
	if err := json.Unmarshal(reply, &stored); err != nil {
		return "", tutti.Wrap(tutti.CodeInternal, err, "answer to %s", wire.OpBlobPut)
	}
	if want := tutti.DigestOf(content); stored.Digest != want {
		return "", tutti.Errorf(tutti.CodeUnavailable, "the agent sent %s, but the server stored %s", want, stored.Digest)
	}
	return stored.Digest, nil
}

var errDamaged = errors.New("some values that the run published are lost")

// sendPublished sends the values that the run published while the server was away, in their order.
// The method notes the values that the server refuses. The argument `again` is true if the server
// may already have the result. If the server has the result, the server takes no further values
// from this run.
func (a *Agent) sendPublished(ctx context.Context, dir string, tells *told, again bool) error {
	file, err := excerpt.Open(filepath.Join(dir, publishFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if tutti.CodeOf(err) == tutti.CodeDamaged {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxMessage)
	refused := map[string]error{} // the server's error by key; nil if the server took the key's last value
	for lines.Scan() {
		var p wire.Publish
		if err := unseal(file.Name(), lines.Bytes(), &p); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		_, err := call[struct{}](ctx, a, wire.OpPublish, p)
		conflict := tutti.CodeOf(err) == tutti.CodeConflict
		switch {
		case again && conflict:
			continue
		case err != nil && !final(err) && !conflict:
			return err
		case err != nil:
			a.opts.Logger.Error("the server refused a published value", "key", p.Key, "run", p.Run, "error", err)
		}
		refused[p.Key] = err
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	for _, key := range sortedKeys(refused) {
		if err := refused[key]; err != nil && !slices.Contains(tells.Refused, key) {
			tells.notTaken(key, err)
		}
	}
	return nil
}

// notTaken notes that the server refused a published value. The resource that published it counts as
// failed, because no server stores the value.
func (t *told) notTaken(key string, why error) {
	t.Refused = append(t.Refused, key)
	r := &t.Result
	failure := tutti.Failure{Resource: fmt.Sprintf("Tutti_value[%s]", key), Message: "the server was away when the value was published, and refused the value later: " + why.Error()}
	r.Failures = append([]tutti.Failure{failure}, r.Failures[:min(len(r.Failures), tutti.MaxFailures-1)]...)
	r.Counts.Failed++
	if r.Outcome.Good() {
		r.Outcome, r.Reason, r.Message = tutti.Failed, tutti.BecauseResources, failure.String()
	}
}

// tidy removes the oldest directories whose results the server has, and the directories of runs that never began.
func (a *Agent) tidy(dirs []string) error {
	var sent, diffs, old []string
	for _, dir := range dirs {
		switch _, err := a.opts.Runner.Spec(dir); {
		case hasFile(dir, sentFile) && hasFile(dir, diffFile):
			diffs = append(diffs, dir)
		case hasFile(dir, sentFile):
			sent = append(sent, dir)
		case tutti.RunID(filepath.Base(dir)) == a.begun.Run: // without a marker, this directory shows that Puppet was not started, so keep the directory
		case errors.Is(err, fs.ErrNotExist) && !hasFile(dir, resultFile):
			old = append(old, dir)
		}
	}
	old = append(old, sent[:max(0, len(sent)-a.opts.KeepRuns)]...)
	old = append(old, diffs[:max(0, len(diffs)-keepDiffs)]...)
	for _, dir := range old {
		killpoint.Here("agent.tidies")
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		killpoint.Here("agent.tidied")
	}
	return nil
}

func (a *Agent) sendLive(lives []tutti.Live) {
	const most = 200 // in one message
	for len(lives) > 0 {
		n := min(most, len(lives))
		if raw, err := json.Marshal(lives[:n]); err == nil {
			_ = a.opts.Bus.Send(wire.OpLive, raw) // these messages are only shown to people, so an error does not matter
		}
		lives = lives[n:]
	}
}
