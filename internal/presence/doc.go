// Package presence has the state of nodes that is not in the log: which machine each key belongs to, when each node was
// last heard of, its last beat, its present run, and counters for its limits. A server that has just started does
// not have this state. The package follows the log outside the writer, and does not import the
// writer.
package presence
