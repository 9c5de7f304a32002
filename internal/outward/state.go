package outward

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/past"
)

// stateDir is the directory with the files of destinations, in a server's directory.
const stateDir = "reports-out"

// maxParked bounds the parked reports of a destination.
const maxParked = 1000

// Status is what has happened for a destination. It is also the content of the file NAME.json in the server's directory.
type Status struct {
	// Cursor is the position of the last run that is done. All later runs wait.
	Cursor tutti.Position `json:"cursor"`
	// Seen is the sequence of the last run that was counted.
	Seen    uint64 `json:"seen"`
	Waiting int    `json:"waiting"`
	// AgentRuns says whether the destination also wanted runs of `puppet agent` when the runs were counted.
	AgentRuns bool `json:"agent_runs,omitempty"`
	Sent      int  `json:"sent"`
	Facts     int  `json:"facts,omitempty"` // how many facts of nodes were sent
	// Dropped counts reports that were never sent: retention removed them first, or too many were parked.
	Dropped int       `json:"dropped"`
	Parked  int       `json:"parked"` // how many are parked now
	SentAt  time.Time `json:"sent_at,omitzero"`
	// Error is the reason why reports wait. Since is when the first request failed after the last good one.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// Parked is a report that the destination refused.
type Parked struct {
	past.Ended
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

func file(dir, name, suffix string) string { return filepath.Join(dir, stateDir, name+suffix) }

// readJSON reads a file. If there is no file, the value stays as it is.
func readJSON(path string, to any) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	return tutti.Wrap(tutti.CodeDamaged, err, "%s cannot be read; delete it, and the server forgets the position, the counters or the parked reports in it", path)
}

func writeJSON(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(raw, '\n'), 0o600)
}

// ReadStatus returns what has happened for a destination. It reads the server's directory and needs no server.
func ReadStatus(dir, name string) (Status, []Parked, error) {
	var st Status
	var parked []Parked
	err := readJSON(file(dir, name, ".json"), &st)
	if err == nil {
		err = readJSON(file(dir, name, ".parked.json"), &parked)
	}
	st.Parked = len(parked)
	return st, parked, err
}

// Retry asks the server to send the parked reports of a destination again. The server looks for such a request every few
// seconds, also after its next start.
func Retry(dir, name string) (int, error) {
	_, parked, err := ReadStatus(dir, name)
	if err != nil || len(parked) == 0 {
		return 0, err
	}
	return len(parked), writeJSON(file(dir, name, ".retry"), parked[len(parked)-1].Seq)
}
