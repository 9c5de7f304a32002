package tutti

import (
	"cmp"
	"slices"
)

// Program is the Puppet program with which a node runs.
type Program string

// The programs. An empty Program means ProgramApply. In a fleet file, a step without a program uses the program of the
// group, and a group without a program uses the program of the fleet.
const (
	ProgramApply Program = "apply" // `puppet apply` with the fleet's code
	ProgramAgent Program = "agent" // `puppet agent` with a catalog of the site's Puppet Server
)

// RunOptions say how Puppet runs in a step.
type RunOptions struct {
	Program Program `json:"program,omitempty"`
	// Environment is for ProgramAgent. If Environment is empty, the node or the Puppet Server chooses
	// it.
	Environment string   `json:"environment,omitempty"`
	Noop        bool     `json:"noop,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	SkipTags    []string `json:"skip_tags,omitempty"`
	Debug       bool     `json:"debug,omitempty"`
	// FreshFacts is true if the run must not use facts that were collected before the run began.
	FreshFacts bool `json:"fresh_facts,omitempty"`
	// In a job that a person started, the first run of a node collects its own facts. If
	// FactsAhead is true, this run may also use facts that were collected before the run.
	FactsAhead bool `json:"facts_ahead,omitempty"`
}

// ProgramOf returns the program of a node for steps that do not set one. ProgramOf uses the node's first group, in the
// order of the file, that sets a program. If no group sets a program, ProgramOf returns the fleet's program.
func (f Fleet) ProgramOf(groups []GroupName) Program {
	for _, g := range f.Groups {
		if g.Program != "" && slices.Contains(groups, g.Name) {
			return g.Program
		}
	}
	return cmp.Or(f.Program, ProgramApply)
}
