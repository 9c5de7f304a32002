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

// epochFile keeps beside the log which epoch of it was served here (ADR 0018).
const EpochFile = "epoch.json"

// Epochs is that file.
type Epochs struct {
	path  string
	Epoch tutti.Epoch `json:"epoch,omitzero"` // zero: none was served yet
	// Above: the next start begins another one, of at least this number. It is the time, in
	// milliseconds since 1970: a second restore of one backup begins a later epoch than the first
	// one did. Where the clock is behind, it begins the next number.
	Above uint64 `json:"above,omitempty"`
}

var _ writer.Epochs = (*Epochs)(nil)

func OpenEpochs(dir string) (*Epochs, error) {
	e := &Epochs{path: filepath.Join(dir, EpochFile)}
	raw, err := os.ReadFile(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, e)
	}
	return e, tutti.Wrap(tutti.CodeDamaged, err, "%s does not say which epoch was served here; if the log beside it is the right one: tutti server new-epoch", e.path)
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

// nextEpoch lets the next start of the server in dir begin another epoch, with a number above one that somebody
// has seen: a clock that was ahead made it too high to be reached by time.
func nextEpoch(dir string, above uint64) error {
	e, err := OpenEpochs(dir)
	if err != nil && tutti.CodeOf(err) != tutti.CodeDamaged { // which this ends
		return err
	}
	e.Above = max(uint64(max(1, time.Now().UTC().UnixMilli())), above+1)
	return e.Write()
}

// maxAbove bounds what a person can ask for: there has to be room for the epochs after it.
const MaxAbove = tutti.MaxEpoch - tutti.EpochStep

// NewEpoch does that for a server that does not run, whose log was put back.
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
