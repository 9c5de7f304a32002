package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// BegunFile keeps what a node must remember even if its run directories are gone (ADR 0018). The file
// is on disk before the agent starts Puppet.
const BegunFile = "begun.json"

// The type `begun` is what the node remembers about orders and about its server.
type begun struct {
	Fence  tutti.Fence    `json:"fence"`           // the fence of the last order that this node has begun
	Run    tutti.RunID    `json:"run,omitempty"`   // the run of that last order
	Server tutti.Position `json:"server,omitzero"` // the last position that this node has seen
}

// Forget removes the files of a state directory that concern only one fleet. These are the files about orders, signed
// actions, the ticket, the time without a server, the node's clock, and the outbox of foreign runs. OwedFile stays,
// because it concerns the machine.
func Forget(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, foreignDir, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range []string{BegunFile, SignedFile, ActionsFile, TicketFile, AloneFile, ClockFile} {
		files = append(files, filepath.Join(dir, name))
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := durable.SyncDir(filepath.Join(dir, foreignDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncDir(dir)
}

// loadBegun reads the file from disk if the file differs from what the agent has written last. The file
// differs at the start, and when somebody restored an earlier state while the agent was running.
func (a *Agent) loadBegun() error {
	kept, err := readSealed[begun](filepath.Join(a.opts.Dir, BegunFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tutti.Wrap("", err, "the note of the last begun order cannot be read, so this node begins no order; remove the file, and the node counts as set back")
	}
	if kept.Fence != a.begun.Fence || kept.Server.Epoch != a.begun.Server.Epoch {
		a.begun = kept
	}
	return nil
}

func (a *Agent) writeBegun(b begun) error {
	if err := writeSealed(filepath.Join(a.opts.Dir, BegunFile), b); err != nil {
		return err
	}
	a.begun = b
	return nil
}

// The method `saw` notes the server's position. The position is written to disk with the next order, or
// when another epoch has begun.
func (a *Agent) saw(at tutti.Position) error {
	b := a.begun
	before := b.Server.Epoch
	b.Server = at
	if at.Epoch == before || at.Epoch.Number == 0 {
		a.begun = b
		return nil
	}
	if err := a.writeBegun(b); err != nil {
		return err
	}
	ring(a.lookAgain) // report again those runs that the server got only in an earlier epoch
	return nil
}

// wantedFile is in the directory of a run that may begin. If a directory has this file but no marker, Puppet was not
// started. A directory that was made only to refuse a run never has this file. The file contains the number of the
// run among the runs of this node. Agents of earlier releases left the file empty.
const wantedFile = "wanted"

// mayBeginOnce returns the reason why an order must not begin. The reason is empty if the order may
// begin. An order never begins if it was begun before, or if it is older than the last begun order. The
// argument `had` is true if the run's directory has wantedFile.
func (a *Agent) mayBeginOnce(claimed wire.Claimed, had bool) string {
	order := claimed.Fence.Compare(a.begun.Fence)
	switch {
	case claimed.Fence == tutti.Fence{}, order > 0, order == 0 && had:
		return ""
	case order == 0:
		return "this node has begun the run before, but has lost the run's directory: the state of the run is unknown"
	}
	return fmt.Sprintf("the order is older than the order of run %s, which this node has begun later", a.begun.Run)
}

// beginOnce writes to disk that the agent begins an order.
func (a *Agent) beginOnce(claimed wire.Claimed) error {
	if claimed.Fence == (tutti.Fence{}) {
		return nil
	}
	err := a.writeBegun(begun{Fence: claimed.Fence, Run: claimed.Order.Run, Server: a.begun.Server})
	killpoint.Here("agent.begun")
	return err
}
