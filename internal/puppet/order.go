package puppet

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// Protocol is the version of the run protocol that this package speaks.
const Protocol = 1

// Order is the content of run.json. Order is all that the launcher knows about the run.
type Order struct {
	Protocol        int            `json:"protocol"`
	Run             tutti.RunID    `json:"run"`
	Node            tutti.NodeName `json:"node"`
	Mode            tutti.Mode     `json:"mode"`
	Program         tutti.Program  `json:"program,omitempty"` // empty means ProgramApply
	Environment     string         `json:"environment"`
	EnvironmentPath string         `json:"environmentpath"`
	ModulePath      []string       `json:"modulepath"`
	Socket          string         `json:"socket"`
	LockTimeout     int            `json:"lock_timeout"`
	GateTimeout     int            `json:"gate_timeout"`
	Tags            []string       `json:"tags"`
	SkipTags        []string       `json:"skip_tags"`
	VolatileFacts   []string       `json:"volatile_facts"`
	Owed            []string       `json:"owed,omitempty"` // resources whose refresh an earlier run owes
	Debug           bool           `json:"debug"`
	Diff            bool           `json:"diff,omitempty"` // write the normalised catalog at the gate
	DigestKey       string         `json:"digest_key,omitempty"`
	ENC             bool           `json:"enc,omitempty"` // the run asks for its classes and parameters
	// DisabledLock replaces Puppet's agent_disabled_lockfile. If DisabledLock is empty,
	// Puppet's own file is used.
	DisabledLock string `json:"disabled_lockfile,omitempty"`

	// The launcher ignores these fields. Only the agent reads these fields again.
	Tutti     tutti.Order `json:"tutti"`
	Launcher  string      `json:"launcher"`
	StartedAt time.Time   `json:"started_at"`
	// Sum stays the last field (see verify). Sum is the digest of the whole order with an empty Sum. Without the digest, a wrong byte on the disk could
	// change the run's identity between its start and its judgement.
	Sum tutti.Digest `json:"sum,omitempty"`
}

const (
	orderFile = "run.json"
	maxOrder  = 16 << 20 // bytes
)

// WriteOrder makes the run's directory and writes the durable marker `starting RUN`. After WriteOrder has returned,
// this run is never started a second time.
func WriteOrder(dir string, o Order) error {
	o.Sum = ""
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	o.Sum = tutti.DigestOf(raw)
	if raw, err = json.Marshal(o); err != nil {
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

// ReadOrder returns the order in a run's directory. ReadOrder returns os.ErrNotExist if the run
// was never about to start.
func ReadOrder(dir string) (Order, error) {
	var o Order
	raw, err := excerpt.Read(filepath.Join(dir, orderFile), maxOrder)
	if err != nil {
		return o, err
	}
	if err = json.Unmarshal(raw, &o); err == nil {
		err = verify(raw, o.Sum)
	}
	return o, tutti.Wrap(tutti.CodeInternal, err, "%s is damaged", filepath.Join(dir, orderFile))
}

// The function `verify` compares the bytes of an order with its sum, which is the last field. The function does not
// encode the order again: after an upgrade the agent reads the orders of the previous release, whose encoding lacks
// later fields.
func verify(raw []byte, sum tutti.Digest) error {
	body, ok := bytes.CutSuffix(raw, []byte(`,"sum":"`+string(sum)+`"}`))
	if !ok || tutti.DigestOf(slices.Concat(body, []byte("}"))) != sum {
		return errors.New("its checksum is wrong")
	}
	return nil
}

// NoteCold writes into the trace of a starting run why the run is not a child of the warm parent.
func NoteCold(dir string, why error) error {
	line, err := json.Marshal(struct {
		T    string `json:"t"`
		Cold string `json:"cold"`
	}{time.Now().UTC().Format("2006-01-02T15:04:05.000Z07:00"), why.Error()})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, "phase.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
