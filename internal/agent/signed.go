package agent

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// Signers knows which code keys sign what this node acts on (ADR 0026).
type Signers interface {
	// Code checks what was signed of a manifest. CodeRefused: no key that is trusted here has, or for another
	// fleet. The zero Signed: only a release of before has signed.
	Code(in tutti.SignedCode) (tutti.Signed, error)
	// Follow takes the next statements about code keys, in order; those that it follows already change nothing.
	// When it returns, they are on disk.
	Follow(chain []tutti.Statement) error
	// Trusts is the counter of the last one that it follows.
	Trusts() uint64
}

// SignedFile keeps up to which counter the code of each environment was begun.
const SignedFile = "signed.json"

// counted is the code of an environment with the highest counter that was begun.
type counted struct {
	Counter uint64       `json:"counter"`
	Code    tutti.Digest `json:"code"`
}

// counters is the file. It is read each time: somebody may put back an earlier state under the agent.
type counters struct {
	path string
	mu   sync.Mutex
}

func (c *counters) read() (map[string]counted, error) {
	kept, err := readSealed[map[string]counted](c.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, tutti.Wrap("", err, "which code this node has begun cannot be read, so it begins none; remove the file, and the node takes any code that was signed for it")
	}
	return kept, nil
}

// admits refuses code that is older than what was begun in the environment of an order, or that was signed for
// another one. The environment is that of the manifest: the form of before says no other one.
func (c *counters) admits(order tutti.Order, environment string, said tutti.Signed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, err := c.read()
	if err != nil {
		return err
	}
	last := kept[order.Environment]
	refused := func(format string, args ...any) error { return tutti.Errorf(tutti.CodeRefused, format, args...) }
	switch {
	case environment != order.Environment:
		return refused("it is signed for environment %s, and the order is of environment %s", environment, order.Environment)
	case said.Old() && len(kept) == 0:
		return nil
	case said.Old(): // also where no counter of this environment is known: the server chooses the order's environment
		return refused("it is signed without a counter, as release 0.2.0 did, and this node has begun code with one (environments: %s): push it again", strings.Join(slices.Sorted(maps.Keys(kept)), ", "))
	case said.Counter < last.Counter:
		return refused("it is signed with the counter %d of environment %s, and this node has begun counter %d since (%.19s): push it again to go back (tutti code push --again)", said.Counter, order.Environment, last.Counter, last.Code)
	case said.Counter == last.Counter && said.Digest != last.Code:
		return refused("it is signed with the counter %d of environment %s, as other code is that this node has begun (%.19s): push it again", said.Counter, order.Environment, last.Code)
	}
	return nil
}

// begin notes code that is about to be begun.
func (c *counters) begin(said tutti.Signed) error {
	if said.Old() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, err := c.read()
	if err != nil {
		return err
	}
	next := counted{Counter: said.Counter, Code: said.Digest}
	if kept[said.Environment] == next {
		return nil
	}
	all := map[string]counted{said.Environment: next}
	for name, of := range maps.All(kept) {
		if name != said.Environment {
			all[name] = of
		}
	}
	if err := writeSealed(c.path, all); err != nil {
		return err
	}
	killpoint.Here("agent.counted")
	return nil
}

// trust follows what the server says of code keys, and claims again to say so. A node that cannot believe it
// begins nothing.
func (a *Agent) trust(chain []tutti.Statement) error {
	if len(chain) == 0 {
		return nil
	}
	before := a.opts.Signers.Trusts()
	if err := a.opts.Signers.Follow(chain); err != nil {
		return tutti.Wrap("", err, "the server says which code keys sign")
	}
	if now := a.opts.Signers.Trusts(); now != before {
		a.opts.Logger.Info("other code keys are trusted", "seq", now)
		a.poke()
	}
	return nil
}
