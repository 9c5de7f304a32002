// Package explain answers operators who only look: lists, how nodes stand, where
// values come from, which nodes read what other nodes publish, what runs have reported. It reads
// one version of the fold at a time (View), the log and the blobs, and does without
// the writer (ADR 0016). What it reads between two looks may be of a later version.
package explain
