package converge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The method `verdict` describes how a step ended, and tells a person what they must know to act.
func (d *decision) verdict(spent bool) (tutti.Verdict, string) {
	var lines []string
	say := func(verdict tutti.Verdict) (tutti.Verdict, string) {
		return verdict, strings.Join(lines, "\n")
	}
	tell := func(format string, phases ...phase) bool {
		found := false
		for _, n := range sortedSeats(d.seats) {
			if seat := d.seats[n]; slices.Contains(phases, seat.phase) {
				lines = append(lines, fmt.Sprintf(format, n, d.tell(seat)))
				found = true
			}
		}
		return found
	}
	divergent := tell("%s keeps changing: %s", diverging)
	if chain := d.chain(); chain != "" {
		lines = append(lines, "nodes change each other's answers: "+chain)
	}
	broken := d.broken()
	lines = append(lines, broken...)
	if spent {
		lines = append(lines, fmt.Sprintf("%d nodes have failed: nothing more began", d.count(failed)))
		tell("%s was not run: %s", ready, resting)
	}
	lines = append(lines, d.barred()...)
	stuck := tell("%s waits: %s", waiting) || d.stoppedBy(waiting)
	undecided := d.undecided()
	lines = append(lines, undecided...)
	if d.job.Mode == tutti.ModeCompile && !divergent && len(broken) == 0 && !stuck {
		if len(undecided) > 0 {
			return tutti.VerdictPartial, strings.Join(append([]string{d.plan()}, undecided...), "\n")
		}
		return tutti.VerdictConverged, d.plan()
	}
	away := tell("%s is not connected: %s", absent)
	resting := tell("%s is %s", paused)
	doubted := d.doubted()
	lines = append(lines, doubted...)
	unjoined := d.unjoined()
	for _, n := range d.step.Nodes {
		if r := n.Last(); r != nil && r.Left && !d.state.nodes[n.Node] {
			lines = append(lines, hasLeft(r, slices.Contains(unjoined, n.Node)))
			unjoined = slices.DeleteFunc(unjoined, func(u tutti.NodeName) bool { return u == n.Node })
		}
	}
	for _, n := range unjoined {
		lines = append(lines, notJoined(n))
	}
	later, gone := d.left()
	lines = append(lines, later...)
	lines = append(lines, gone...)
	switch {
	case divergent:
		return say(tutti.VerdictDiverging)
	case len(broken) > 0 || spent || d.stoppedBy(failed, diverging):
		return say(tutti.VerdictFailed)
	case stuck:
		return say(tutti.VerdictStuck)
	case len(later) > 0:
		return say(tutti.VerdictDeferred)
	case away || resting || len(doubted) > 0 || len(gone) > 0 || len(undecided) > 0 || d.stoppedBy(absent, paused):
		return say(tutti.VerdictPartial)
	}
	tell("%s is as its code says, but %s", restless)
	return say(tutti.VerdictConverged)
}

// The method `unjoined` returns the nodes that a person wants to converge but that have never joined.
func (d *decision) unjoined() []tutti.NodeName {
	if d.step.Converge.Reaction || d.view.Unjoined == nil {
		return nil
	}
	return d.view.Unjoined(d.step.Converge.Target)
}

// The method `undecided` returns a line for each node that may belong to the target. Nobody knows whether it does, so the
// step has not reached its goal.
func (d *decision) undecided() []string {
	if d.view.Undecided == nil {
		return nil
	}
	return d.view.Undecided(d.step.Converge.Target)
}

// notJoined says that a node is listed but has not joined. Nodes are often listed before they join, because grants
// are pushed first.
func notJoined(n tutti.NodeName) string {
	return fmt.Sprintf("%s was not run: the fleet file lists it, and it has not joined", n)
}

// NotNoted returns a text about a node that cannot note foreign runs. The argument `why` is the reason. The result is
// empty if `why` is empty.
func NotNoted(why string) string {
	if why == "" {
		return ""
	}
	return "a run that Tutti did not start may have changed it: the node cannot note such runs: " + why
}

// The method `doubted` returns a line for each node that seems good but cannot note foreign runs. For a reaction,
// only nodes that took part are considered.
func (d *decision) doubted() []string {
	if d.view.Unnoted == nil {
		return nil
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(d.state.nodes)) {
		seat := d.seats[n]
		if seat == nil && (d.step.Converge.Reaction || !d.view.Member(d.step.Converge.Target, n)) {
			continue
		}
		if why := d.view.Unnoted(n); why != "" && (seat == nil || seat.phase == good || seat.phase == restless) {
			out = append(out, fmt.Sprintf("%s is suspect: %s", n, NotNoted(why)))
		}
	}
	return out
}

// hasLeft says that a node left during its run. A node that no longer belongs to the fleet does not count as
// failed.
func hasLeft(r *engine.Run, listed bool) string {
	if listed {
		return fmt.Sprintf("%s has left, and the fleet file still lists it: %s", r.Node, r.Lost)
	}
	return fmt.Sprintf("%s has left: %s", r.Node, r.Lost)
}

// The method `barred` names the nodes that did not run because their serial group stopped at another node. The method
// returns one line for each place where a group stopped.
func (d *decision) barred() []string {
	at := map[string][]tutti.NodeName{}
	for _, n := range sortedSeats(d.seats) {
		if seat := d.seats[n]; seat.phase == barred {
			at[seat.why] = append(at[seat.why], n)
		}
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(at)) {
		were := "was"
		if len(at[why]) > 1 {
			were = "were"
		}
		out = append(out, fmt.Sprintf("%s %s not run: %s", list(at[why]), were, why))
	}
	return out
}

// stoppedBy reports whether a node did not run because another node is in one of these phases.
func (d *decision) stoppedBy(phases ...phase) bool {
	for _, seat := range d.seats {
		if seat.phase == barred && slices.Contains(phases, seat.cause) {
			return true
		}
	}
	return false
}

// The method `broken` explains why nodes failed. The method returns one line for each node, or for all nodes that
// failed in the same way.
func (d *decision) broken() []string {
	alike := map[string][]tutti.NodeName{}
	var order, out []string
	for _, n := range sortedSeats(d.seats) {
		if d.seats[n].phase != failed {
			continue
		}
		text := d.tell(d.seats[n])
		if !strings.HasPrefix(text, string(tutti.Failed)+":") {
			text = string(tutti.Failed) + ": " + text
		}
		text = strings.ReplaceAll(text, " on node "+string(n), "") // Puppet's own message ends with the node's name
		if alike[text] == nil {
			order = append(order, text)
		}
		alike[text] = append(alike[text], n)
	}
	for _, text := range order {
		nodes := alike[text]
		if len(nodes) == 1 {
			out = append(out, string(nodes[0])+" "+text)
			continue
		}
		how, why, _ := strings.Cut(text, ": ")
		out = append(out, fmt.Sprintf("%s on %d nodes: %s: %s", how, len(nodes), list(nodes), why))
	}
	return out
}

// The method `left` explains why some nodes are not good after a reaction. These nodes did not run in the reaction.
// The lines in `later` name nodes that will run at another time. The lines in `gone` name nodes that cannot run.
func (d *decision) left() (later, gone []string) {
	if !d.step.Converge.Reaction || d.view.Reaction == nil {
		return nil, nil
	}
	waiting, away := map[string][]tutti.NodeName{}, map[string][]tutti.NodeName{}
	for _, n := range slices.Sorted(maps.Keys(d.state.needy)) {
		seat := d.seats[n]
		if !d.view.Member(d.step.Converge.Target, n) || seat != nil && seat.phase != good && seat.phase != deferred {
			continue // the node is not in the target, or another part of the verdict reports it
		}
		// Judge the node again here. In this job's view, the node may have read values from the
		// compiles of other nodes. When the other nodes published these values, nothing changed for
		// the node, so it was not judged again at that time.
		standing := d.state.Standing(n, d.view.Has(n))
		if standing.Need == Nothing {
			continue
		}
		switch why := d.state.Rests(d.view, n, standing); {
		case !d.view.connected(n):
			away["not connected"] = append(away["not connected"], n)
		case d.view.Paused(n) != "":
			away[d.view.Paused(n)] = append(away[d.view.Paused(n)], n)
		case why == "":
			waiting["the next job takes it up: "+standing.Why()] = append(waiting["the next job takes it up: "+standing.Why()], n)
		default:
			waiting[why] = append(waiting[why], n)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(waiting)) {
		later = append(later, fmt.Sprintf("deferred: %s: %s", list(waiting[why]), why))
	}
	for _, why := range slices.Sorted(maps.Keys(away)) {
		gone = append(gone, fmt.Sprintf("not good and %s: %s", why, list(away[why])))
	}
	return later, gone
}

// The method `tell` explains why a node is not good.
func (d *decision) tell(seat *seat) string {
	switch seat.phase {
	case diverging:
		return d.changers(seat)
	case failed:
		if r := lastOf(seat.runs); r != nil && (seat.why == "" || r.Outcome() == tutti.Failed) {
			return endOf(r)
		}
	case waiting:
		return d.missing(seat)
	default: // the reason below is enough
	}
	return seat.reason()
}

// endOf describes in one line how a run ended.
func endOf(r *engine.Run) string {
	text, said := string(r.Outcome()), []string{r.Lost}
	if r.Result != nil {
		if r.Result.Reason != "" {
			text += ":" + string(r.Result.Reason)
		}
		said = append(said, r.Result.Says())
	}
	for _, why := range said {
		if why != "" {
			text += ": " + why
		}
	}
	return text
}

// changers names the questions whose answers kept changing, and the nodes that changed
// them.
func (d *decision) changers(seat *seat) string {
	switch {
	case seat.cycle != nil:
		return d.state.tellCycle(d.view, seat.cycle)
	case seat.standing.Facts:
		return seat.reason()
	}
	tries, _, stops := count(seat.runs)
	text := fmt.Sprintf("after %d runs and %d stopped compiles", tries, stops)
	if len(seat.standing.Changed) == 0 {
		return text
	}
	var parts []string
	for _, q := range seat.standing.Changed {
		part := q.String()
		if names := d.state.Publishers(seat.node, q, d.job.ID); len(names) > 0 {
			part += " (by " + list(names) + ")"
		}
		parts = append(parts, part)
	}
	return text + " these have changed again: " + strings.Join(parts, ", ")
}

// The method `missing` names what a node waits for, and which nodes could provide it.
func (d *decision) missing(seat *seat) string {
	last := d.state.engine.Last(seat.node).Applied
	if last == nil || last.Result == nil {
		return seat.reason()
	}
	text := last.Result.Message
	for _, w := range last.Result.Waits {
		if names := d.state.Publishers(seat.node, w.Query, d.job.ID); len(names) > 0 {
			text += fmt.Sprintf("; %s is to come from %s", w.Query, list(names))
		}
	}
	return text
}

// Publishers returns the nodes that publish into a question of a node, or declare that
// they will.
func (s *State) Publishers(node tutti.NodeName, query tutti.Query, job tutti.JobID) []tutti.NodeName {
	var out []tutti.NodeName
	for q := range s.data.Questions(node) {
		if q.Query.Equal(query) {
			for n := range q.Producers(job) {
				if n != node {
					out = append(out, n)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
