package converge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// The method `plan` describes which nodes would run, in which order and why. All nodes that need something have
// compiled before the call. The method lists waves, and each wave waits for the waves before it. The values that runs
// publish are not known before the runs apply. The later waves therefore show only what is known now.
func (d *decision) plan() string {
	todo := map[tutti.NodeName]*seat{}
	var lines, proved []string
	for _, n := range sortedSeats(d.seats) {
		seat := d.seats[n]
		switch why := d.unmet(seat); {
		case why == "":
			proved = append(proved, string(n))
		case seat.phase == absent || seat.phase == paused:
			lines = append(lines, fmt.Sprintf("not: %s: %s", n, d.tell(seat)))
		default:
			copied := *seat
			copied.phase, copied.why = ready, why
			todo[n] = &copied
		}
	}
	lines = append(lines, d.planStops(todo)...)
	before := map[tutti.NodeName][]tutti.NodeName{}
	var waves []string
	for wave := 1; len(todo) > 0; wave++ {
		preceded := d.state.precedence(d.view, d.job.ID, todo, turns{d.view.Serial, nobody})
		var free []tutti.NodeName
		for _, n := range sortedSeats(todo) {
			if names := preceded.of(n); names == nil {
				free = append(free, n)
			} else {
				before[n] = names
			}
		}
		for _, n := range free {
			text := fmt.Sprintf("%d. %s: %s", wave, n, todo[n].why)
			if names := before[n]; names != nil {
				text += "; after " + list(names)
			}
			waves = append(waves, text)
			delete(todo, n)
		}
		if len(free) == 0 { // cannot happen: the fleet file's order has no cycle, and other cycles were broken
			break
		}
	}
	for _, n := range d.unjoined() {
		lines = append(lines, "not: "+notJoined(n))
	}
	if len(proved) > 0 {
		lines = append(lines, "nothing to do, as their compiles show: "+strings.Join(proved, ", "))
	}
	if len(waves) == 0 && len(lines) == 0 {
		return "nothing would run"
	}
	return strings.Join(slices.Concat(waves, lines), "\n")
}

func nobody(tutti.NodeName) bool { return false }

// planStops removes from a plan the nodes that do not get their turn in a serial group. For each
// removed node, the method returns a line with the reason.
func (d *decision) planStops(todo map[tutti.NodeName]*seat) (lines []string) {
	seats := maps.Clone(d.seats) // proved nodes are not in `todo`, and their seats are good
	maps.Copy(seats, todo)
	d.state.stop(d.view, d.job.ID, seats)
	for _, n := range sortedSeats(todo) {
		if todo[n].phase == barred {
			lines = append(lines, fmt.Sprintf("not: %s: %s", n, todo[n].why))
			delete(todo, n)
		}
	}
	return lines
}

// The method `unmet` explains why a node that has compiled would apply. The method returns an empty string if the
// node would not apply. The compile has already replaced the node's record, so the method looks at the node's last
// run.
func (d *decision) unmet(seat *seat) string {
	last := d.state.engine.Last(seat.node)
	if r := seat.standing.Run; r != nil && (r.Foreign != nil || r.Mode != tutti.ModeApply) {
		return seat.standing.Why()
	}
	if why := unfinished(last); why != "" {
		return why
	}
	if last.Passed != nil && forgotten(last.Passed) {
		return whyForgotten(last.Passed)
	}
	r := lastOf(seat.runs)
	if r == nil && seat.standing.why == "" && len(seat.standing.Changed) > 0 {
		return d.whatChanged(seat.node, seat.standing.Changed)
	}
	if r == nil {
		return seat.standing.Why()
	}
	if last.Passed.Asked == nil {
		return "there is no record of what its last run read"
	}
	if changed := d.state.outdatedSince(last.Passed, d.job.ID); len(changed) > 0 {
		return d.whatChanged(seat.node, changed)
	}
	if provable(last.Passed, r) {
		return ""
	}
	return "its catalog, or a file that the catalog names, differs from that of its last run"
}

// whatChanged names those questions of a node whose answers differ from the answers in its
// last run. The method also says what changed each answer: public data, or exports of this
// job's compiles.
func (d *decision) whatChanged(node tutti.NodeName, questions []tutti.Query) string {
	var public []tutti.Query
	if passed := d.state.engine.Last(node).Passed; passed != nil && passed.Asked != nil {
		public = d.state.outdatedSince(passed, "")
	}
	var told []string
	for _, q := range questions[:min(len(questions), maxCauses)] {
		text := q.String()
		if !slices.ContainsFunc(public, q.Equal) {
			text += " (because of what these compiles export)"
		} else if _, known := d.state.data.LastChange(node, q); known {
			text += " (" + strings.TrimPrefix(d.state.changeOf(node, q), q.Key+" ") + ")"
		}
		told = append(told, oneLine(text))
	}
	if more := len(questions) - len(told); more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return "what it read has changed since its last run: " + strings.Join(told, ", ")
}
