package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Deadline is how long a node may be silent before the server gives up its run. Beat is
// the time between two heartbeats of a node.
const (
	Deadline = 30 * time.Second
	Beat     = 5 * time.Second
)

// Spell is a time in which nobody could reach a host.
type Spell struct {
	Host     string
	From, To time.Time
}

// Started is what a node's disk shows about a run.
type Started struct {
	Run      tutti.RunID
	Node     string
	Starts   int       // how often the launcher was started
	From, To time.Time // a time in which Puppet was certainly running; zero if Puppet never had its lock
	Result   bool      // the agent has the run's result
}

// Wanted is what the server's log shows about a run.
type Wanted struct {
	Run     tutti.RunID
	Node    string
	Job     tutti.JobID
	Claimed bool
	Result  bool      // the server has the node's own result, even if the result came late
	LostAt  time.Time // when the server gave up the run; zero if it did not
}

// History is everything that is known when a schedule is over and every fault is
// repaired.
type History struct {
	Server  string // its host
	Spells  []Spell
	Jobs    []api.JobView
	Wanted  []Wanted
	Started []Started
	Nodes   []api.NodeView
}

// Judge returns the violations, one line each, sorted. An empty list means that there is no
// violation.
func Judge(h History) []string {
	found := slices.Concat(h.jobs(), h.starts(), h.overlaps(), h.losses(), h.nodes())
	slices.Sort(found)
	return found
}

func (h History) jobs() []string {
	var found []string
	for _, j := range h.Jobs {
		if j.Verdict == "" {
			found = append(found, fmt.Sprintf("job %s has no verdict", j.Job))
		}
	}
	return found
}

// The method `starts` compares the runs on the nodes with the runs in the log.
func (h History) starts() []string {
	var found []string
	wanted := map[tutti.RunID]Wanted{}
	for _, w := range h.Wanted {
		wanted[w.Run] = w
	}
	for _, s := range h.Started {
		w, ok := wanted[s.Run]
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s has run %s, which the log does not know", s.Node, s.Run))
		case w.Node != s.Node:
			found = append(found, fmt.Sprintf("%s has run %s, which is one of %s", s.Node, s.Run, w.Node))
		case s.Starts > 0 && !w.Claimed:
			found = append(found, fmt.Sprintf("%s started run %s without a claim in the log", s.Node, s.Run))
		case s.Starts > 1:
			found = append(found, fmt.Sprintf("%s started run %s %d times", s.Node, s.Run, s.Starts))
		case s.Result && !w.Result:
			found = append(found, fmt.Sprintf("%s has a result of run %s, but the log has none", s.Node, s.Run))
		}
	}
	return found
}

// The method `overlaps` looks for two Puppet processes on a node at the same time.
func (h History) overlaps() []string {
	var found []string
	byNode := map[string][]Started{}
	for _, s := range h.Started {
		if !s.From.IsZero() {
			byNode[s.Node] = append(byNode[s.Node], s)
		}
	}
	for node, runs := range byNode {
		slices.SortFunc(runs, func(a, b Started) int { return a.From.Compare(b.From) })
		var last Started
		for _, s := range runs {
			if s.From.Before(last.To) {
				found = append(found, fmt.Sprintf("%s had two Puppets at once: run %s from %s, run %s until %s",
					node, s.Run, clock(s.From), last.Run, clock(last.To)))
			}
			if s.To.After(last.To) {
				last = s
			}
		}
	}
	return found
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// The method `losses` checks that each node was really away when its run was given up.
func (h History) losses() []string {
	var found []string
	for _, w := range h.Wanted {
		if w.LostAt.IsZero() {
			continue
		}
		// The server counts the silence from the node's last heartbeat. The node may have sent
		// this heartbeat up to one beat before it went away.
		if away := h.away(w.Node, w.LostAt); away < Deadline-Beat {
			found = append(found, fmt.Sprintf("run %s of %s was given up at %s, the node was away for %.1fs of the %s before",
				w.Run, w.Node, clock(w.LostAt), away.Seconds(), Deadline))
		}
	}
	return found
}

// The method `away` looks at the last period of the length Deadline before the time `until`. It
// returns for how much of this period nobody could reach the node or the server's host. The
// time between two spells also counts if it is so short that nobody detects in it that a
// connection works again.
func (h History) away(node string, until time.Time) time.Duration {
	var spells []Spell
	for _, s := range h.Spells {
		if s.Host == node || s.Host == h.Server {
			spells = append(spells, s)
		}
	}
	slices.SortFunc(spells, func(a, b Spell) int { return a.From.Compare(b.From) })
	from := until.Add(-Deadline)
	var total time.Duration
	var last Spell
	for i, s := range spells {
		if i > 0 && s.From.Sub(last.To) < last.To.Sub(last.From)+Beat {
			s.From = last.From
			total -= overlap(last, from, until)
		}
		if s.To.Before(last.To) {
			s.To = last.To
		}
		total += overlap(s, from, until)
		last = s
	}
	return total
}

func overlap(s Spell, from, to time.Time) time.Duration {
	if s.From.After(from) {
		from = s.From
	}
	if s.To.Before(to) {
		to = s.To
	}
	return max(0, to.Sub(from))
}

// The method `nodes` looks for nodes that have not come back.
func (h History) nodes() []string {
	var found []string
	for _, n := range h.Nodes {
		if !n.Connected {
			found = append(found, fmt.Sprintf("%s is not connected", n.Node))
		}
		if n.Active != "" {
			found = append(found, fmt.Sprintf("%s is stuck in run %s", n.Node, n.Active))
		}
	}
	return found
}

// Describe returns the schedule for people. The first line contains the seed, and each further line
// describes one fault.
func Describe(seed uint64, faults []Fault) string {
	lines := []string{fmt.Sprintf("seed %d: %d faults", seed, len(faults))}
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}
