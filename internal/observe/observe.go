// Package observe judges a node on which Tutti starts nothing, by the reports and files that Puppet leaves on the node
// (ADR 0030).
package observe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const (
	// DefaultEvery is Puppet's own default of `runinterval`.
	DefaultEvery = 30 * time.Minute
	// late is how many intervals may pass after the beginning of the last run. A daemon waits for its interval, and splays
	// its runs by up to another interval.
	late = 3
	// driftRuns is how many runs in a row make corrective changes on a drifting node.
	driftRuns = 3
)

// Verdict is the state of an observed node.
type Verdict struct {
	State api.NodeState
	Why   string // empty for api.NodeGood
	Since time.Time
}

// Node is what the server knows about an observed node.
type Node struct {
	Now       time.Time
	Connected bool
	SeenAt    time.Time // time of the last message; zero if there is none
	JoinedAt  time.Time
	// Puppet is what Puppet's files on the node say. Puppet is nil if the agent has not reported them.
	Puppet *tutti.PuppetFiles
	// Every is the time between two runs, according to the fleet file. If Every is 0, the setting in the node's
	// puppet.conf counts.
	Every time.Duration
	Runs  []Run // the runs that Tutti did not start; the run that began last comes first
}

// Run is a run that Tutti did not start.
type Run struct {
	*tutti.Foreign
	ReportedAt time.Time // when the server learned of the run, by the server's clock
}

// Began returns when the run began, by the server's clock if possible. If the agent's message says how long ago the
// run began, Began uses this time. If the message does not say it, Began returns the start by the node's clock, or
// the time of the message if that is earlier.
func (r Run) Began() time.Time {
	if r.Ago > 0 {
		return r.ReportedAt.Add(-r.Ago)
	}
	if r.Result.StartedAt.After(r.ReportedAt) {
		return r.ReportedAt
	}
	return r.Result.StartedAt
}

// The method `counts` reports whether the run shows the node's state. A noop run, a run by the agent, and a run of which
// the agent has seen only the end show nothing.
func (r Run) counts() bool { return !r.Noop && r.Local == nil && r.Puppet != "" }

// Judge returns the state of an observed node. The table of ADR 0030 has the rules.
func Judge(n Node) Verdict {
	var runs []Run
	for _, r := range n.Runs {
		if r.counts() {
			runs = append(runs, r)
		}
	}
	switch {
	case !n.Connected:
		return Verdict{State: api.NodeUnknown, Why: "nothing is heard of its agent", Since: later(n.SeenAt, n.JoinedAt)}
	case n.Puppet != nil && n.Puppet.Disabled != nil:
		return disabled(*n.Puppet.Disabled)
	case len(runs) == 0:
		return Verdict{State: api.NodeUnknown, Why: "its agent has found no report of a Puppet run", Since: n.JoinedAt}
	}
	last := runs[0]
	if why := failure(last, n.Puppet); why != "" {
		return Verdict{State: api.NodeFailed, Why: why, Since: row(runs, func(r Run) bool { return failure(r, n.Puppet) != "" })}
	}
	every, from := interval(n)
	if n.Now.Sub(last.Began()) > late*every {
		return Verdict{
			State: api.NodeSilent, Since: last.Began(),
			// The text has no time that goes on, so that it is the same text until the state changes.
			Why: fmt.Sprintf("Puppet has not run for more than %s, and %s: every %s", late*every, from, every),
		}
	}
	if len(runs) >= driftRuns && corrects(runs[:driftRuns]) {
		return Verdict{
			State: api.NodeDrifting, Since: row(runs, func(r Run) bool { return r.Result.Corrective }),
			Why: "each of its last runs corrected something that had changed since the run before: " + changed(last),
		}
	}
	if n.Puppet == nil {
		return Verdict{State: api.NodeUnknown, Why: "its agent does not say whether Puppet is disabled: its release is too old, or it cannot read Puppet's files", Since: last.Began()}
	}
	return Verdict{State: api.NodeGood, Since: last.Began()}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func disabled(d tutti.PuppetDisabled) Verdict {
	return Verdict{
		State: api.NodeDisabled, Since: d.Since,
		Why: "Puppet is disabled by " + cmp.Or(d.By, "an unknown user") + ": " + cmp.Or(d.Message, "no reason was given"),
	}
}

// The function `failure` explains why the result of a run is not good. It returns an empty string if the result is good.
func failure(r Run, puppet *tutti.PuppetFiles) string {
	switch {
	case !r.Result.Outcome.Good():
		return fmt.Sprintf("%s: %s", reason(r), tutti.OneLine(r.Result.Message))
	case puppet != nil && puppet.Environment != "" && r.Environment != puppet.Environment:
		return fmt.Sprintf("environment: its last run was of environment %s, and its puppet.conf names %s", r.Environment, puppet.Environment)
	}
	return ""
}

// unknownEnvironment are parts of Puppet's messages about an environment that the Puppet Server does not have, or that
// the node may not use (puppet/configurer.rb, puppet/network/http/api/indirected_routes.rb).
var unknownEnvironment = []string{"Could not find a directory environment named", "Could not find environment", "does not match agent specified environment"}

func reason(r Run) string {
	for _, part := range unknownEnvironment {
		if strings.Contains(r.Result.Message, part) {
			return "environment"
		}
	}
	return string(r.Result.Reason)
}

// The function `row` begins with the latest run and goes back as long as the function `has` returns true. It returns
// the beginning of the earliest run that it reaches.
func row(runs []Run, has func(Run) bool) time.Time {
	first := runs[0]
	for _, r := range runs {
		if !has(r) {
			break
		}
		first = r
	}
	return first.Began()
}

func corrects(runs []Run) bool {
	for _, r := range runs {
		if !r.Result.Corrective {
			return false
		}
	}
	return true
}

func changed(r Run) string {
	if n := r.Result.Counts.Changed; n != 1 {
		return fmt.Sprintf("%d resources in the last run", n)
	}
	return "1 resource in the last run"
}

// The function `interval` returns the time between two runs, and says where this time comes from.
func interval(n Node) (every time.Duration, from string) {
	switch {
	case n.Every > 0:
		return n.Every, "the fleet file says runs_every"
	case n.Puppet != nil && n.Puppet.Every > 0:
		return n.Puppet.Every, "its puppet.conf says runinterval"
	}
	return DefaultEvery, "the default of runinterval is"
}
