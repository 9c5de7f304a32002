package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tutti-project/tutti"
)

// These are the values of labels that no other package lists.
const (
	modeForeign    = "foreign" // a run that Tutti did not order
	outcomeStopped = "stopped" // the gate stopped the run, and Puppet applied nothing
	labelOther     = "other"
)

var (
	// callers are the kinds of callers that the server refuses, see core.Core.Denied.
	callers = []string{"node", "operator", "token", "certificate", "address", "key", labelOther}
	// Doors are the ports at which connections are refused before their client is known.
	Doors   = []string{DoorOperators, DoorNodes}
	verdict = []tutti.Verdict{
		tutti.VerdictSucceeded, tutti.VerdictFailed, tutti.VerdictCancelled, tutti.VerdictConverged, tutti.VerdictStuck,
		tutti.VerdictDiverging, tutti.VerdictPartial, tutti.VerdictDeferred,
	}
)

// The doors of the server.
const (
	DoorOperators = "operators"
	DoorNodes     = "nodes"
)

// The classes of calls of operators.
const (
	ClassRead   = "read"
	ClassWrite  = "write"
	ClassStream = "stream"
)

// The buckets of the histograms.
var (
	appendBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
	batchBuckets  = []float64{1, 2, 5, 10, 20, 50, 100, 250, 1000, 10_000}
	httpBuckets   = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	runBuckets    = []float64{1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	jobBuckets    = []float64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14_400}
)

// Options are the settings of Meters.
type Options struct {
	// Destinations are the names of the destinations of reports.
	Destinations []string
}

// Meters are the server's numbers. All methods are safe for concurrent calls, and none of them blocks, except a scrape.
type Meters struct {
	registry *prometheus.Registry
	fleet    *fleet
	host     *host

	runs      *prometheus.CounterVec
	runTime   *prometheus.HistogramVec
	gates     *prometheus.CounterVec
	resources *prometheus.CounterVec
	jobs      *prometheus.CounterVec
	jobTime   prometheus.Histogram
	joins     *prometheus.CounterVec
	encs      prometheus.Counter

	appendTime prometheus.Histogram
	batch      prometheus.Histogram
	calls      *prometheus.CounterVec
	callTime   *prometheus.HistogramVec
	denied     *prometheus.CounterVec
	doors      *prometheus.CounterVec
}

// New returns meters in which every combination of labels has the value 0.
func New(o Options) *Meters {
	m := &Meters{registry: prometheus.NewRegistry(), fleet: newFleet(), host: newHost(o.Destinations)}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.fleet, m.host)
	m.runs = m.counter("tutti_runs_total", "Runs that ended. The mode foreign has the runs that Tutti did not order.", "mode", "outcome", "reason")
	m.runTime = m.histogram("tutti_run_seconds", "Time of the phases of runs, by the server's clock. The phase compile begins with the claim.", runBuckets, "phase")
	m.gates = m.counter("tutti_gate_total", "Answers of the gate. The verdict hold counts runs that had to wait for their answer.", "verdict")
	m.resources = m.counter("tutti_resources_total", "Resources in the results of runs that Tutti ordered.", "outcome")
	m.jobs = m.counter("tutti_jobs_total", "Jobs that ended.", "kind", "cause", "verdict")
	m.jobTime = m.plain("tutti_job_seconds", "Time from the start to the end of a job.", jobBuckets)
	m.joins = m.counter("tutti_joins_total", "Machines that joined, also again.", "by")
	m.encs = m.counter("tutti_enc_changes_total", "Answers of the ENC that differed from the answer before.").WithLabelValues()
	m.appendTime = m.plain("tutti_log_append_seconds", "Time of an append to the log, with its fsync.", appendBuckets)
	m.batch = m.plain("tutti_log_batch_events", "Events in an append to the log.", batchBuckets)
	m.calls = m.counter("tutti_http_total", "Calls of operators that ended.", "call", "ok")
	m.callTime = m.histogram("tutti_http_seconds", "Time of calls of operators.", httpBuckets, "class")
	m.denied = m.counter("tutti_denied_total", "Attempts that were not allowed, by the kind of the caller. An address is a stranger.", "kind")
	m.doors = m.counter("tutti_door_refused_total", "Connections that were closed before their client was known.", "door")
	m.begin()
	return m
}

func (m *Meters) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Meters) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

// The method `plain` makes a histogram without labels.
func (m *Meters) plain(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// The method `begin` makes every combination of labels.
func (m *Meters) begin() {
	for _, mode := range []string{string(tutti.ModeApply), string(tutti.ModeNoop), string(tutti.ModeCompile), modeForeign} {
		for _, outcome := range append(slices.Clone(tutti.Outcomes), outcomeStopped) {
			reasons := []tutti.Reason{""}
			if outcome == tutti.Failed {
				reasons = append(slices.Clone(tutti.Reasons), labelOther)
			}
			for _, reason := range reasons {
				m.runs.WithLabelValues(mode, string(outcome), string(reason))
			}
		}
	}
	each := func(c *prometheus.CounterVec, values ...string) {
		for _, v := range values {
			c.WithLabelValues(v)
		}
	}
	each(m.gates, string(tutti.GateGo), string(tutti.GateStop), string(tutti.GateHold))
	each(m.resources, "changed", "failed", "skipped", "unchanged")
	each(m.joins, joinedByToken, joinedByCertificate)
	each(m.denied, callers...)
	each(m.doors, Doors...)
	for _, phase := range phases {
		m.runTime.WithLabelValues(phase)
	}
	for _, kind := range kinds {
		causes := []string{causePerson}
		if kind == kindConverge {
			causes = append(causes, causeReaction)
		}
		for _, cause := range causes {
			for _, v := range verdict {
				m.jobs.WithLabelValues(kind, cause, string(v))
			}
		}
	}
	for _, class := range []string{ClassRead, ClassWrite, ClassStream} {
		m.callTime.WithLabelValues(class)
	}
}

// scrapesAtOnce is how many scrapes the server answers at the same time.
const scrapesAtOnce = 4

// Handler answers scrapes.
func (m *Meters) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce})
}

// Appended counts an append to the log that has ended. An append that failed counts, too, because it took its time.
func (m *Meters) Appended(events int, took time.Duration) {
	m.appendTime.Observe(took.Seconds())
	m.batch.Observe(float64(events))
}

// Expect makes the counters of a call of operators.
func (m *Meters) Expect(call string) {
	m.calls.WithLabelValues(call, "true")
	m.calls.WithLabelValues(call, "false")
}

// Called counts a call of an operator that has ended.
func (m *Meters) Called(call, class string, ok bool, took time.Duration) {
	m.calls.WithLabelValues(call, strconv.FormatBool(ok)).Inc()
	m.callTime.WithLabelValues(class).Observe(took.Seconds())
}

// Denied counts an attempt that was not allowed. The text `who` begins with the kind of the caller and a colon.
func (m *Meters) Denied(who string) {
	kind, _, _ := strings.Cut(who, ":")
	if !slices.Contains(callers, kind) {
		kind = labelOther
	}
	m.denied.WithLabelValues(kind).Inc()
}

// TurnedAway counts a connection that was closed at one of the Doors.
func (m *Meters) TurnedAway(door string, connections int) {
	m.doors.WithLabelValues(door).Add(float64(connections))
}
