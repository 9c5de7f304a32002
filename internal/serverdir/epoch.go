package serverdir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/writer"
)

// EpochFile is a file next to the log. EpochFile notes the epoch of the log that was
// served here (ADR 0018).
const EpochFile = "epoch.json"

// Epochs is the content of EpochFile.
type Epochs struct {
	path  string
	Epoch tutti.Epoch `json:"epoch,omitzero"` // zero: no epoch was served yet
	// If Above is set, the next start begins another epoch with at least this number. The number is the
	// time in milliseconds since 1970. A second restore of one backup therefore begins a later epoch
	// than the first restore. If the clock is behind, the epoch gets the next number.
	Above uint64 `json:"above,omitempty"`
}

var _ writer.Epochs = (*Epochs)(nil)

// OpenEpochs reads the epoch that was served in a directory.
func OpenEpochs(dir string) (*Epochs, error) {
	e := &Epochs{path: filepath.Join(dir, EpochFile)}
	raw, err := os.ReadFile(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, e)
	}
	return e, tutti.Wrap(tutti.CodeDamaged, err, "%s does not say which epoch was served here; if the log next to it is the right one: tutti server new-epoch", e.path)
}

// Last implements writer.Epochs.
func (e *Epochs) Last() (tutti.Epoch, uint64) { return e.Epoch, e.Above }

// Began implements writer.Epochs.
func (e *Epochs) Began(now tutti.Epoch) error {
	if now == e.Epoch && e.Above == 0 {
		return nil
	}
	e.Epoch, e.Above = now, 0
	return e.Write()
}

func (e *Epochs) Write() error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.WriteFile(e.path, append(raw, '\n'), 0o600)
}

// nextEpoch makes the next start of the server in dir begin another epoch. The epoch's number is higher than
// the number `above`, which somebody has seen. If a clock was ahead, `above` may be higher than the present
// time.
func nextEpoch(dir string, above uint64) error {
	e, err := OpenEpochs(dir)
	if err != nil && tutti.CodeOf(err) != tutti.CodeDamaged { // the new epoch repairs this damage
		return err
	}
	e.Above = max(uint64(max(1, time.Now().UTC().UnixMilli())), above+1)
	return e.Write()
}

// MaxAbove is the highest number that a person can give. There is room for later epochs above
// MaxAbove.
const MaxAbove = tutti.MaxEpoch - tutti.EpochStep

// NewEpoch does the same as nextEpoch, for a server that is not running and whose log was set
// back.
func NewEpoch(dir string, above uint64) error {
	if above > MaxAbove {
		return tutti.Errorf(tutti.CodeInvalid, "epoch %d: at most %d", above, uint64(MaxAbove))
	}
	if _, err := ReadConfig(dir); err != nil {
		return err
	}
	lock, err := durable.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	return nextEpoch(dir, above)
}
