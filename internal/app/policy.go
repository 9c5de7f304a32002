package app

import (
	"errors"
	"io/fs"
	"os"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/puppet"
)

// groupsBeside is the suffix of the file next to a policy that has its groups of callers.
const groupsBeside = ".groups"

// allow asks the policy in a file. It reads the file each time, so changes need no
// signal to the agent. A file that cannot be read denies everything.
func allow(file string, local puppet.Local) func(policy.Question) (bool, string) {
	shipped, badShipped := policy.ParseActions("the shipped policy", policy.Shipped, "", "")
	return func(q policy.Question) (bool, string) {
		p, err := readPolicy(file)
		if errors.Is(err, fs.ErrNotExist) {
			p, err = shipped, badShipped
		}
		if err != nil {
			return false, "no policy that can be read, denied: " + err.Error()
		}
		q.Classes = local.Classes
		return p.Decide(q)
	}
}

// readPolicy reads a policy and its file of groups, which may be missing.
func readPolicy(file string) (*policy.Actions, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(file + groupsBeside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return policy.ParseActions(file, string(text), file+groupsBeside, string(groups))
}

// checkPolicy returns the places in a policy that do not do what they seem to do.
func checkPolicy(file string) ([]cli.PolicyFinding, error) {
	p, err := readPolicy(file)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "policy")
	}
	var out []cli.PolicyFinding
	for _, f := range p.Check() {
		out = append(out, cli.PolicyFinding(f))
	}
	return out, nil
}
