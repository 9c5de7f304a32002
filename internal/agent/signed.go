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

// Signers knows the code keys that this node trusts (ADR 0026).
type Signers interface {
	// Code checks the signed statement about a manifest. Code returns CodeRefused if no trusted code key has signed
	// it, or if it is for another fleet. Code returns the zero Signed if the code was signed in the form of an
	// earlier release.
	Code(in tutti.SignedCode) (tutti.Signed, error)
	// Compile checks a permission to compile code (ADR 0038), but not its time. Compile returns CodeRefused if no
	// trusted code key has signed it for this code and this fleet.
	Compile(in tutti.SignedCode) (tutti.SignedCompile, error)
	// Follow stores the next statements about code keys, in order. Follow ignores statements that the
	// node follows already. When Follow returns, the statements are on disk.
	Follow(chain []tutti.Statement) error
	// Trusts returns the counter of the last statement that this node follows.
	Trusts() uint64
}

// SignedFile keeps, for each environment, the highest counter of the code that this
// node has begun.
const SignedFile = "signed.json"

// The type `counted` is about the codes that this node has begun in an environment. It contains the
// highest counter, and the code with this counter.
type counted struct {
	Counter uint64       `json:"counter"`
	Code    tutti.Digest `json:"code"`
}

// counters is the content of SignedFile. The agent reads the file each time, because somebody may
// restore an earlier state.
type counters struct {
	path string
	mu   sync.Mutex
}

func (c *counters) read() (map[string]counted, error) {
	kept, err := readSealed[map[string]counted](c.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, tutti.Wrap("", err, "the counters of begun code cannot be read, so this node begins no code; remove the file, and the node accepts any code that was signed for it")
	}
	return kept, nil
}

// The method `admits` returns an error if the code is older than the newest code that this node has
// begun to run in the order's environment. The method also refuses code that was signed for another
// environment. The argument `environment` is the environment in the manifest, because signatures in
// the old form name no environment.
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
		return refused("it is signed for environment %s, but the order is for environment %s", environment, order.Environment)
	case said.Old() && len(kept) == 0:
		return nil
	case said.Old(): // also refused in an environment without a counter, because the server chooses the order's environment
		return refused("it is signed without a counter, as release 0.2.0 did, but this node has already begun code with a counter (environments: %s): push it again", strings.Join(slices.Sorted(maps.Keys(kept)), ", "))
	case said.Counter < last.Counter:
		return refused("it is signed with the counter %d of environment %s, but this node has since begun code with the counter %d (%.19s): push it again to go back (tutti code push --again)", said.Counter, order.Environment, last.Counter, last.Code)
	case said.Counter == last.Counter && said.Digest != last.Code:
		return refused("it is signed with the counter %d of environment %s, but this node has begun other code with the same counter (%.19s): push it again", said.Counter, order.Environment, last.Code)
	}
	return nil
}

// The method `begin` stores the counter of code that the agent is about to use.
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

// The method `trust` follows the server's statements about code keys, and claims again to report
// the node's new state. If the node cannot verify the statements, the node begins no run.
func (a *Agent) trust(chain []tutti.Statement) error {
	if len(chain) == 0 {
		return nil
	}
	before := a.opts.Signers.Trusts()
	if err := a.opts.Signers.Follow(chain); err != nil {
		return tutti.Wrap("", err, "the server's statements about code keys")
	}
	if now := a.opts.Signers.Trusts(); now != before {
		a.opts.Logger.Info("the node trusts other code keys now", "seq", now)
		a.poke()
	}
	return nil
}
