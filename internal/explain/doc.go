// Package explain answers requests of operators that change nothing: lists, the state of nodes, the
// origin of values, the readers of published data, and the reports of runs. The package reads one
// version of the fold at a time (View), the log and the blobs. The package does not need the writer
// (ADR 0016). If one request reads the fold twice, the second version may be later than the first.
package explain
