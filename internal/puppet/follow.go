package puppet

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// Follower reads what a launcher appends to its files.
type Follower struct {
	run    tutti.RunID
	events *tail
	phases *tail
}

// Follow begins at the start of the files in a run's directory. The files need not exist
// yet.
func Follow(dir string, run tutti.RunID) *Follower {
	return &Follower{
		run:    run,
		events: &tail{path: filepath.Join(dir, "events.jsonl")},
		phases: &tail{path: filepath.Join(dir, "phase.jsonl")},
	}
}

// Close releases the files.
func (f *Follower) Close() {
	f.events.close()
	f.phases.close()
}

type eventLine struct {
	T        time.Time `json:"t"`
	Event    string    `json:"event"`
	Resource string    `json:"resource"`
	Changed  bool      `json:"changed"`
	Failed   bool      `json:"failed"`
	Skipped  bool      `json:"skipped"`
	Message  string    `json:"message"`
	Total    int       `json:"resources"`
	Notifies []string  `json:"notifies"` // resources that this resource refreshes when it has changed
}

// Next returns what was appended since the last call. Next drops lines that it cannot read. The lines are only shown
// to people and decide nothing.
func (f *Follower) Next() ([]tutti.Live, error) {
	var out []tutti.Live
	err := f.phases.each(func(line []byte) {
		var p phaseLine
		if json.Unmarshal(line, &p) == nil && p.Phase != "" {
			out = append(out, tutti.Live{Run: f.run, At: p.T, Phase: p.Phase, Message: p.WaitingFor.Command})
		}
	})
	if err != nil {
		return out, err
	}
	err = f.events.each(func(line []byte) {
		var e eventLine
		if json.Unmarshal(line, &e) != nil {
			return
		}
		switch e.Event {
		case "change", "refreshed", "dropped": // only the function Refreshes needs these events
			return
		}
		out = append(out, tutti.Live{
			Run: f.run, At: e.T, Resource: e.Resource, Done: e.Event == "done",
			Changed: e.Changed, Failed: e.Failed, Skipped: e.Skipped, Message: e.Message, Total: e.Total,
		})
	})
	return out, err
}

// maxLook limits how many bytes of a file one call of Next reads. The next calls read the remaining bytes. After the
// end of a run, Next is called once more.
const maxLook = 8 << 20

// tail reads the complete lines of a growing file.
type tail struct {
	path  string
	file  *os.File
	lines excerpt.Splitter
}

func (t *tail) each(f func(line []byte)) error {
	if t.file == nil {
		file, err := excerpt.Open(t.path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		t.file, t.lines.Most = file, maxLine
	}
	more, err := io.ReadAll(io.LimitReader(t.file, maxLook))
	t.lines.Split(more, f)
	return err
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
	}
}
