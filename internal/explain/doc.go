// Package explain answers operators' requests that change nothing: lists, the state of nodes, where
// values come from, which nodes read what other nodes publish, what runs have reported. It reads
// one version of the fold at a time (View), the log and the blobs. It does not need
// the writer (ADR 0016). A second look may see a later version than the first.
package explain
