package tutti

import (
	"cmp"
	"slices"
	"time"
)

// Program is the Puppet program with which a node runs.
type Program string

// The programs. An empty Program means ProgramApply. In a fleet file, a step without a program uses the program of the
// group, and a group without a program uses the program of the fleet.
const (
	ProgramApply Program = "apply" // `puppet apply` with the fleet's code
	ProgramAgent Program = "agent" // `puppet agent` with a catalog of the site's Puppet Server
	// ProgramObserve is for nodes on which Tutti starts nothing (ADR 0030). Puppet runs there by its daemon, by cron or
	// by a person. No step and no order has this program.
	ProgramObserve Program = "observe"
)

// RunOptions say how Puppet runs in a step.
type RunOptions struct {
	Program Program `json:"program,omitempty"`
	// If Environment is empty, each node uses the environment of its groups (see Fleet.EnvironmentOf).
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
	program, _ := f.programOf(groups)
	return program
}

// programOf does the same as ProgramOf, and also returns the group that sets the program. The group is empty if the
// fleet sets the program.
func (f Fleet) programOf(groups []GroupName) (Program, GroupName) {
	for _, g := range f.Groups {
		if g.Program != "" && slices.Contains(groups, g.Name) {
			return g.Program, g.Name
		}
	}
	return cmp.Or(f.Program, ProgramApply), ""
}

// EnvironmentOf returns the environment of a node of these groups for steps that do not set one. EnvironmentOf uses the
// node's first group, in the order of the file, that sets an environment. If no group sets an environment, a node with
// ProgramAgent has none, and the node or the Puppet Server chooses it. Any other node has the fleet's environment.
func (f Fleet) EnvironmentOf(groups []GroupName) string {
	if named := f.EnvironmentNamed(groups); named != "" || f.ProgramOf(groups) == ProgramAgent {
		return named
	}
	return f.Environment.Name
}

// EnvironmentNamed returns the environment that the groups of a node set. It is empty if no group sets one.
func (f Fleet) EnvironmentNamed(groups []GroupName) string {
	for _, g := range f.Groups {
		if g.Environment != "" && slices.Contains(groups, g.Name) {
			return g.Environment
		}
	}
	return ""
}

// EnvironmentBy returns the environment that the groups of a node set, or else the ENC if the fleet file lets it. It is
// empty if nobody sets one. With ProgramAgent the Puppet Server asks its own ENC.
func (f Fleet) EnvironmentBy(groups []GroupName, answer *Classification) string {
	named := f.EnvironmentNamed(groups)
	if named == "" && f.Environment.ENC && answer != nil && f.ProgramOf(groups) != ProgramAgent {
		return answer.Environment
	}
	return named
}

// EnvironmentFor does the same as EnvironmentOf for a node about which the ENC gives this answer.
func (f Fleet) EnvironmentFor(groups []GroupName, answer *Classification) string {
	return cmp.Or(f.EnvironmentBy(groups, answer), f.EnvironmentOf(groups))
}

// Declared returns the environments whose code `tutti code push` sends, the fleet's environment first.
func (f Fleet) Declared() []Environment {
	if f.Environment.Name == "" {
		return f.Environments
	}
	return append([]Environment{f.Environment}, f.Environments...)
}

// WhyObserved returns why Tutti starts nothing on a node of these groups. WhyObserved returns an empty string if
// the node is not observed.
func (f Fleet) WhyObserved(groups []GroupName) string {
	switch program, by := f.programOf(groups); {
	case program != ProgramObserve:
		return ""
	case by != "":
		return "the fleet file says `mode: observe` for group " + string(by)
	}
	return "the fleet file says `mode: observe`"
}

// RunsEveryOf returns the time between two Puppet runs of an observed node of these groups. If no group sets this time,
// RunsEveryOf returns the fleet's time. The result is 0 if nothing sets it; then the node's puppet.conf counts.
func (f Fleet) RunsEveryOf(groups []GroupName) time.Duration {
	for _, g := range f.Groups {
		if g.RunsEvery != 0 && slices.Contains(groups, g.Name) {
			return g.RunsEvery
		}
	}
	return f.RunsEvery
}
