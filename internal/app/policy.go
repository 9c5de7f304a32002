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

// groupsBeside is the suffix of a file next to a policy. The file has the groups of
// callers for the policy.
const groupsBeside = ".groups"

// The function `allow` returns a function that decides according to the policy in a file.
// This function reads the file at each call, so the agent needs no signal after a change.
// If the file cannot be read, every action is denied.
func allow(file string, local puppet.Local) func(policy.Question) (bool, string) {
	shipped, badShipped := policy.ParseActions("the shipped policy", policy.Shipped, "", "")
	return func(q policy.Question) (bool, string) {
		p, err := readPolicy(file)
		if errors.Is(err, fs.ErrNotExist) {
			p, err = shipped, badShipped
		}
		if err != nil {
			return false, "the policy cannot be read, so the action is denied: " + err.Error()
		}
		q.Classes = local.Classes
		return p.Decide(q)
	}
}

// readPolicy reads a policy and its file of groups. The file of groups may be missing.
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

// checkPolicy returns the lines of a policy whose effect differs from what a reader
// expects.
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
