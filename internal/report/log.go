package report

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// line is a message in a report or a line of a run's log. The report calls its time `time`, and the log calls it `t`.
type line struct {
	T       time.Time `json:"t"`
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	Source  string    `json:"source"`
	File    string    `json:"file"`
	Line    int       `json:"line"`
	Column  int       `json:"pos"`
}

func (l line) plain() api.LogLine {
	if l.T.IsZero() {
		l.T = l.Time
	}
	return api.LogLine{
		At: sane(l.T), Level: tutti.Plain(l.Level, 20), Message: plain(tutti.CutJournal(l.Message)), Source: plain(l.Source), File: plain(l.File), Line: max(l.Line, 0), Column: max(l.Column, 0),
	}
}

// Log yields the messages of a run's log. Each line of the log is one message. A killed process may leave
// half a line. For a line that cannot be read, Log yields a message about this error.
func Log(raw []byte, yield func(api.LogLine) error) error {
	before := true // the previous line could be read
	for text := range bytes.Lines(raw) {
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var l line
		good := len(text) <= maxPart && json.Unmarshal(text, &l) == nil
		if !good {
			l = line{Level: "warning", Source: "tutti", Message: "this line of the log cannot be read"}
		}
		if !good && !before {
			continue
		}
		before = good
		if err := yield(l.plain()); err != nil {
			return err
		}
	}
	return nil
}

// Logged yields the messages of the log that a report contains. Logged returns CodeInvalid if the input is not a
// report.
func Logged(raw []byte, yield func(api.LogLine) error) error {
	var log []api.LogLine
	err := sections(raw, map[string]func(*json.Decoder) error{
		"logs": list(maxLines, func(l line) { log = append(log, l.plain()) }),
	})
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "this is no report of Puppet")
	}
	for _, l := range log {
		if err := yield(l); err != nil {
			return err
		}
	}
	return nil
}
