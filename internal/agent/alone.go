package agent

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
)

// AloneFile keeps what a node needs to know while its server is away (ADR 0023).
const AloneFile = "alone.json"

// Alone is the content of AloneFile.
type Alone struct {
	// Told is the server's last instruction about what the node does without the server. Told is
	// nil if the server has given no instruction.
	Told *tutti.Alone `json:"told,omitempty"`
	// Denied is the reason why the server refused this machine at the last request.
	// Denied is empty if the server accepted the machine.
	Denied string `json:"denied,omitempty"`
	// Reached is the time of the server's last answer, as stored in the file. The true time of the
	// last answer is at most aloneKept later.
	Reached time.Time `json:"reached,omitzero"`
	// Started is when the agent started.
	Started time.Time `json:"started,omitzero"`
	// Ran is when the last safety run began.
	Ran time.Time `json:"ran,omitzero"`
	// Applied is the order of the last full run that passed its gate here. Basis is one digest of all
	// answers that this run got and of the catalog that it applied.
	Applied *tutti.Order `json:"applied,omitempty"`
	Basis   tutti.Digest `json:"basis,omitempty"`
}

const (
	// aloneKept is how old Alone.Reached may be on disk.
	aloneKept = 5 * time.Minute
	// awayAfter is how long the server may be silent before it counts as away. The time begins at the server's last
	// answer. Before the first answer, the time begins at the agent's start. The time between two claims of an agent
	// is shorter than awayAfter.
	awayAfter = 2 * claimEvery
	// aloneSpread is a divisor. The nodes spread their safety runs over a part of the time between
	// two safety runs: that time divided by aloneSpread.
	aloneSpread = 4
)

// ReadAlone reads AloneFile from the state directory dir of an agent. ReadAlone returns
// fs.ErrNotExist if there is no such file.
func ReadAlone(dir string) (Alone, error) {
	return readSealed[Alone](filepath.Join(dir, AloneFile))
}

// Safety returns the time from which a node makes a safety run, or the reason why it makes none.
func (s Alone) Safety(node tutti.NodeName) (at time.Time, none string) {
	switch {
	case s.Denied != "":
		return at, "the server does not accept this machine as the node: " + s.Denied
	case s.Told == nil:
		return at, "the server has not said yet that safety runs are allowed"
	case s.Told.Safety == 0:
		return at, s.Told.Why
	case s.Applied == nil:
		return at, "no full run has passed its gate here yet"
	}
	h := fnv.New64a()
	h.Write([]byte(node))
	spread := time.Duration(h.Sum64() % uint64(s.Told.Safety/aloneSpread))
	at = s.Started.Add(min(awayAfter, s.Told.Safety)) // an agent that has just started has not tried to reach the server yet
	for _, since := range []time.Time{s.Reached, s.Ran} {
		if next := since.Add(s.Told.Safety); !since.IsZero() && next.After(at) {
			at = next
		}
	}
	return at.Add(spread), ""
}

// loadAlone loads what an earlier agent knew. The method replaces a time in the future by the
// present time.
func (a *Agent) loadAlone() {
	now := time.Now()
	kept, err := ReadAlone(a.opts.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.opts.Logger.Error("this node makes no safety run until a full run has passed its gate again", "error", err)
	}
	for _, t := range []*time.Time{&kept.Reached, &kept.Ran} {
		if !t.IsZero() {
			*t = now.Add(-max(0, now.Sub(*t))) // from now on, the monotonic clock measures this time
		}
	}
	kept.Started = now
	a.aloneMu.Lock()
	a.alone = kept
	a.aloneMu.Unlock()
	if err == nil {
		a.noteAlone(a.learn(func(*Alone) {}))
	}
}

// The method `knows` returns the present content of AloneFile.
func (a *Agent) knows() Alone {
	a.aloneMu.Lock()
	defer a.aloneMu.Unlock()
	return a.alone
}

// The method `learn` changes the content of AloneFile, and returns when the change is on disk.
func (a *Agent) learn(change func(*Alone)) error {
	a.aloneMu.Lock()
	defer a.aloneMu.Unlock()
	next := a.alone
	change(&next)
	if err := writeSealed(filepath.Join(a.opts.Dir, AloneFile), next); err != nil {
		return err
	}
	a.alone, a.aloneAt = next, next.Reached
	return nil
}

// needsCode is the digest of the code that a local run needs.
func (a *Agent) needsCode() tutti.Digest {
	if applied := a.knows().Applied; applied != nil {
		return applied.Code
	}
	return ""
}

// The method `reached` sets the time of the server's last answer.
func (a *Agent) reached() {
	a.aloneMu.Lock()
	defer a.aloneMu.Unlock()
	a.alone.Reached = time.Now()
}

// The method `observed` returns the reason why the agent starts nothing on this node by itself: no local run, and no
// collection of facts. The reason is empty if the agent may do so.
func (s Alone) observed() string {
	if s.Told != nil && s.Told.Observed {
		return s.Told.Why
	}
	return ""
}

// toldAlone stores the instruction in the answer to a claim. If the instruction has not changed,
// toldAlone writes the file to disk only now and then.
func (a *Agent) toldAlone(told *tutti.Alone) {
	now := a.knows()
	defer func() {
		if !a.instructed.Swap(true) {
			ring(a.tellAgain) // facts are collected only now
		}
	}()
	same := now.Denied == "" && (told == nil) == (now.Told == nil) && (told == nil || *told == *now.Told)
	a.aloneMu.Lock()
	recent := time.Since(a.aloneAt) < aloneKept
	a.aloneMu.Unlock()
	if same && recent || told == nil && now.Told == nil {
		return
	}
	a.noteAlone(a.learn(func(s *Alone) { s.Told, s.Denied = told, "" }))
}

// Denied notes that the server refuses this machine. The node makes no safety run until the server
// answers a claim again.
func (a *Agent) Denied(why error) {
	if a.knows().Denied == why.Error() {
		return
	}
	a.noteAlone(a.learn(func(s *Alone) { s.Denied = why.Error() }))
}

// noteDenied calls Denied if the server has refused this machine. Other errors of the server do not
// concern this machine.
func (a *Agent) noteDenied(err error) {
	switch tutti.CodeOf(err) {
	case tutti.CodeRefused, tutti.CodeUnauthenticated, tutti.CodeConflict, tutti.CodeNotFound:
		a.Denied(err)
	default:
	}
}

func (a *Agent) noteAlone(err error) {
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a missing directory means that the agent has not begun
		a.opts.Logger.Error("the instructions for the time without a server could not be stored", "error", err)
	}
}

// noteApplied notes the order of a run that has passed its gate. A local run repeats this order.
func (a *Agent) noteApplied(spec Spec, out tutti.Result, record tutti.Record) {
	if !spec.Order.Full() || !out.PassedGate() {
		return
	}
	order := spec.Order
	a.noteAlone(a.learn(func(s *Alone) { s.Applied, s.Basis = &order, basisDigest(record) }))
}
