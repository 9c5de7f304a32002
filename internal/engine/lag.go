package engine

import (
	"time"
)

const (
	// maxLags is how often a node compiles in a row while PuppetDB has not stored what the
	// node collects. With the pauses this takes about five minutes. Other waits do not
	// count, for example the wait for another node's run.
	maxLags = 14
	// lagRest is the first pause. Each pause is twice as long as the previous one, but at most
	// lagMost.
	lagRest, lagMost = 2 * time.Second, 30 * time.Second
)

// Behind says what PuppetDB still has to store before Puppet may apply the run's catalog
// (ADR 0013). Behind returns an empty string if PuppetDB has stored everything.
func (r *Run) Behind() string {
	if r.Served == nil || len(r.Served.Lags) == 0 {
		return ""
	}
	return r.Served.Lags[0].String()
}

// Lagged reports whether the run was stopped because PuppetDB lagged. A run that was
// stopped because PuppetDB lagged does not count as a try of its node.
func (r *Run) Lagged() bool { return r.Behind() != "" && r.Result != nil && r.Result.Stopped }

// Lagging returns the time when a node compiles again after its last run lagged. Lagging
// also reports whether the node has already compiled maxLags times. If the last run did
// not lag, the time is zero. The argument `from` turns a time of the log into a time of the server's clock (see
// View.from).
func Lagging(runs []*Run, from func(logged time.Time) time.Time) (again time.Time, over bool) {
	rest := lagRest / 2
	first := len(runs)
	for ; first > 0 && runs[first-1].Lagged(); first-- {
		rest = min(2*rest, lagMost)
	}
	if first == len(runs) {
		return time.Time{}, false
	}
	return from(runs[len(runs)-1].EndedAt).Add(rest), len(runs)-first >= maxLags
}

// The method `anew` reports whether a node compiles once more because its run was stopped. A node compiles at most
// maxAttempts times in the step. If PuppetDB lags, a node compiles at most maxLags times in a row.
func (n *StepNode) anew(r *Run) bool {
	if r.Lost != "" || !r.Result.Stopped {
		return false
	}
	if r.Lagged() {
		_, over := Lagging(n.Runs, func(logged time.Time) time.Time { return logged })
		return !over
	}
	stops := 0
	for _, other := range n.Runs {
		if !other.Lagged() {
			stops++
		}
	}
	return stops < maxAttempts
}

// The method `resting` reports whether a node pauses for PuppetDB before it compiles again.
func (n *StepNode) resting(v View) bool {
	again, _ := Lagging(n.Runs, v.from)
	return v.Now.Before(again)
}
