// Package metrics has the server's numbers for Prometheus (ADR 0043). Counters and histograms count what happens while
// the process lives. Gauges of the fleet come from a version of the fold beside the writer. A scrape never waits for the
// writer. No label names a node, a job, a run, a key, an operator or a resource.
package metrics
