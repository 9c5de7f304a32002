package tutti

import (
	"cmp"
	"slices"
)

// Program is the Puppet program by which a node runs.
type Program string

// The programs. An empty one is ProgramApply; in a fleet file, what the next
// wider place says.
const (
	ProgramApply Program = "apply" // `puppet apply` of the fleet's code
	ProgramAgent Program = "agent" // `puppet agent`, of a catalog of the site's Puppet Server
)

// RunOptions say how Puppet runs in a step.
type RunOptions struct {
	Program     Program  `json:"program,omitempty"`
	Environment string   `json:"environment,omitempty"` // of ProgramAgent; empty: the node's own, or what the server says
	Noop        bool     `json:"noop,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	SkipTags    []string `json:"skip_tags,omitempty"`
	Debug       bool     `json:"debug,omitempty"`
	FreshFacts  bool     `json:"fresh_facts,omitempty"` // none that were collected before the run began
	// FactsAhead lets also the first run of a node in a person's job use facts that were collected
	// before.
	FactsAhead bool `json:"facts_ahead,omitempty"`
}

// ProgramOf is the program by which a node of some groups runs where no step says
// otherwise: that of the first of its groups, in the file's order, that says one, else
// the fleet's.
func (f Fleet) ProgramOf(groups []GroupName) Program {
	for _, g := range f.Groups {
		if g.Program != "" && slices.Contains(groups, g.Name) {
			return g.Program
		}
	}
	return cmp.Or(f.Program, ProgramApply)
}
