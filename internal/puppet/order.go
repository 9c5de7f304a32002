package puppet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// Protocol is the version of the run protocol that this package speaks.
const Protocol = 1

// Order is run.json: all that the launcher is told.
type Order struct {
	Protocol        int            `json:"protocol"`
	Run             tutti.RunID    `json:"run"`
	Node            tutti.NodeName `json:"node"`
	Mode            tutti.Mode     `json:"mode"`
	Environment     string         `json:"environment"`
	EnvironmentPath string         `json:"environmentpath"`
	ModulePath      []string       `json:"modulepath"`
	Socket          string         `json:"socket"`
	LockTimeout     int            `json:"lock_timeout"`
	GateTimeout     int            `json:"gate_timeout"`
	Tags            []string       `json:"tags"`
	SkipTags        []string       `json:"skip_tags"`
	Debug           bool           `json:"debug"`
	DigestKey       string         `json:"digest_key,omitempty"`

	// What only the agent reads again.
	Tutti     tutti.Order `json:"tutti"`
	Launcher  string      `json:"launcher"`
	StartedAt time.Time   `json:"started_at"`
}

const orderFile = "run.json"

// WriteOrder makes the run's directory and, durably, the marker `starting RUN`.
// Once it has returned, this run is never started a second time.
func WriteOrder(dir string, o Order) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, orderFile), raw, 0o600); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// ReadOrder returns the order of a run's directory; os.ErrNotExist if the run
// was never about to start.
func ReadOrder(dir string) (Order, error) {
	var o Order
	raw, err := os.ReadFile(filepath.Join(dir, orderFile))
	if err != nil {
		return o, err
	}
	err = json.Unmarshal(raw, &o)
	return o, tutti.Wrap(tutti.CodeInternal, err, "%s", filepath.Join(dir, orderFile))
}
