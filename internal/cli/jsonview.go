package cli

import (
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// jsonView prints one JSON object in each line. Events are printed as they are
// in the log, and have the type `event`. Messages about what happens inside a
// run have the type `live`. The last line has the type `summary`.
type jsonView struct {
	progress *progress
	out      *json.Encoder
}

type summaryLine struct {
	Type         string        `json:"type"`
	Job          tutti.JobID   `json:"job"`
	Cause        string        `json:"cause,omitempty"` // reason why the server began the job by itself
	Outcome      tutti.Verdict `json:"outcome"`
	Runs         int           `json:"runs"`
	Compiles     int           `json:"compiles"`
	Failed       int           `json:"failed"`
	WallS        float64       `json:"wall_s"`
	CriticalPath float64       `json:"critical_path_s"`
	Message      string        `json:"message,omitempty"`
	Error        string        `json:"error,omitempty"`
}

// The function `summarize` returns the last line, with the numbers of a job.
func summarize(j *engine.Job, now time.Time) summaryLine {
	s := j.Summary(now)
	return summaryLine{
		Type: "summary", Job: j.ID, Cause: j.Cause, Outcome: s.Outcome, Runs: s.Runs, Compiles: s.Compiles, Failed: s.Failed,
		WallS: seconds(s.Wall), CriticalPath: seconds(s.CriticalPath), Message: j.Message,
	}
}

func (v *jsonView) show(w api.Watched) {
	if w.Live != nil {
		_ = v.out.Encode(struct {
			Type string `json:"type"`
			*tutti.Live
		}{"live", w.Live})
		return
	}
	raw, err := json.Marshal(w.Event)
	if err != nil {
		return
	}
	var flat map[string]json.RawMessage
	if json.Unmarshal(raw, &flat) == nil {
		flat["type"] = json.RawMessage(`"event"`)
		_ = v.out.Encode(flat)
	}
}

func (v *jsonView) say(message string) {
	_ = v.out.Encode(map[string]string{"type": "notice", "message": message})
}

func (v *jsonView) finish(err error) {
	line := summarize(v.progress.job(), time.Now())
	if err != nil {
		line.Error = err.Error()
	}
	_ = v.out.Encode(line)
}

func (v *jsonView) close() {}

// The function `seconds` converts a duration to seconds with three decimal places.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
