package metrics

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
)

const (
	// overviewFor is how long an overview is used. It bounds the work that scrapes can cause.
	overviewFor = 5 * time.Second
	// overviewDeadline is how long a scrape waits for an overview. After that, the answer has no numbers of the fleet.
	overviewDeadline = 2 * time.Second
)

// Source makes an overview of the fleet from a version of the fold.
type Source func(context.Context) (explain.Tally, error)

// Serve says where the numbers of the fleet come from. A nil source means that the server does not serve.
func (m *Meters) Serve(from Source) {
	if from == nil {
		m.fleet.from.Store(nil)
		return
	}
	m.fleet.from.Store(&from)
}

var states = []api.NodeState{
	api.NodeGood, api.NodeSuspect, api.NodeStale, api.NodeWaiting, api.NodeFailed, api.NodeNew,
	api.NodeUnknown, api.NodeSilent, api.NodeDisabled, api.NodeDrifting,
}

// fleet collects the gauges of the fleet. If there is no overview, the gauges are missing: an old number would look like
// a good one.
type fleet struct {
	from atomic.Pointer[Source]

	mu     sync.Mutex
	of     *Source // the source of the fields below
	tried  time.Time
	last   *explain.Tally // nil: there is none
	stale  since
	failed since

	states, groups *prometheus.Desc
	gauges         []gauge
}

// gauge is a number of an overview without labels.
type gauge struct {
	desc  *prometheus.Desc
	value func(*fleet, explain.Tally) float64
}

func newFleet() *fleet {
	f := &fleet{
		stale: since{}, failed: since{},
		states: prometheus.NewDesc("tutti_nodes", "Nodes by their state in `tutti node list`.", []string{"state"}, nil),
		groups: prometheus.NewDesc("tutti_group_nodes", "Nodes of a group by their state. The group other has the groups after the first 30.", []string{"group", "state"}, nil),
	}
	add := func(name, help string, value func(*fleet, explain.Tally) float64) {
		f.gauges = append(f.gauges, gauge{prometheus.NewDesc(name, help, nil, nil), value})
	}
	count := func(name, help string, value func(explain.Tally) int) {
		add(name, help, func(_ *fleet, o explain.Tally) float64 { return float64(value(o)) })
	}
	count("tutti_nodes_connected", "Nodes that were heard of recently.", func(o explain.Tally) int { return o.Connected })
	count("tutti_nodes_paused", "Nodes on which a pause lets no run begin.", func(o explain.Tally) int { return o.Paused })
	count("tutti_nodes_running", "Nodes with a run that has begun and not ended.", func(o explain.Tally) int { return o.Running })
	count("tutti_nodes_asking", "Machines that wait for somebody to approve them.", func(o explain.Tally) int { return o.Asking })
	count("tutti_enc_failing_nodes", "Nodes for which the last call of the ENC failed.", func(o explain.Tally) int { return o.NoENC })
	count("tutti_jobs_active", "Jobs that have not ended.", func(o explain.Tally) int { return o.Jobs })
	count("tutti_queue_runs", "Runs that are wanted and not claimed by their node.", func(o explain.Tally) int { return o.Queue })
	add("tutti_queue_oldest_seconds", "Age of the oldest run in the queue, 0 if the queue is empty.", func(_ *fleet, o explain.Tally) float64 { return age(o.At, o.Oldest) })
	add("tutti_oldest_stale_seconds", "How long a node has been stale, at least, for the node that has been stale for the longest time.",
		func(f *fleet, o explain.Tally) float64 { return age(o.At, f.stale.oldest()) })
	add("tutti_oldest_failed_seconds", "How long a node has been failed, at least, for the node that has been failed for the longest time.",
		func(f *fleet, o explain.Tally) float64 { return age(o.At, f.failed.oldest()) })
	add("tutti_log_sequence", "The last event of the log that readers see.", func(_ *fleet, o explain.Tally) float64 { return float64(o.Seq) })
	return f
}

// The function `age` returns the seconds from a time to now, and 0 for the zero time.
func age(now, at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

// Describe implements prometheus.Collector.
func (f *fleet) Describe(out chan<- *prometheus.Desc) {
	out <- f.states
	out <- f.groups
	for _, g := range f.gauges {
		out <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (f *fleet) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	if f.last == nil {
		return
	}
	for _, state := range states {
		out <- prometheus.MustNewConstMetric(f.states, prometheus.GaugeValue, float64(f.last.States[state]), string(state))
		for group, nodes := range f.last.Groups {
			out <- prometheus.MustNewConstMetric(f.groups, prometheus.GaugeValue, float64(nodes[state]), string(group), string(state))
		}
	}
	for _, g := range f.gauges {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(f, *f.last))
	}
}

// The method `look` makes an overview, if the last one is too old. After a failure it does not try again at once.
func (f *fleet) look() {
	from := f.from.Load()
	if from == nil {
		f.last, f.of = nil, nil
		return
	}
	if f.of == from && time.Since(f.tried) < overviewFor {
		return
	}
	f.of, f.last = from, nil
	ctx, cancel := context.WithTimeout(context.Background(), overviewDeadline)
	defer cancel()
	overview, err := (*from)(ctx)
	f.tried = time.Now()
	if err != nil {
		return
	}
	f.stale.note(overview.Stale, overview.At, exactly)
	f.failed.note(overview.Failed, overview.At, earlier)
	f.last = &overview
}

// since has, for each node in a state, the time from which the node has certainly been in this state.
type since map[tutti.NodeName]time.Time

// The method `note` gets the nodes that are in the state now, with the times that the log has. The function `choose`
// decides between such a time and the time at which this process first saw the node in the state.
func (s since) note(now map[tutti.NodeName]time.Time, at time.Time, choose func(seen, logged time.Time) time.Time) {
	for n := range s {
		if _, is := now[n]; !is {
			delete(s, n)
		}
	}
	for n, logged := range now {
		seen, known := s[n]
		if !known {
			seen = at
		}
		s[n] = choose(seen, logged)
	}
}

// The function `exactly` is for stale nodes: the log says when the node became stale, or nobody knows it.
func exactly(seen, change time.Time) time.Time {
	if change.IsZero() {
		return seen
	}
	return change
}

// The function `earlier` is for failed nodes: the node's last run failed.
func earlier(seen, run time.Time) time.Time {
	if !run.IsZero() && run.Before(seen) {
		return run
	}
	return seen
}

func (s since) oldest() time.Time {
	var out time.Time
	for _, at := range s {
		if out.IsZero() || at.Before(out) {
			out = at
		}
	}
	return out
}
