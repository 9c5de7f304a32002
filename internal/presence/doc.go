// Package presence knows which nodes are there: which machine each key belongs to, when each node was last heard of, what it said then,
// which run it has, and how often it did what is limited. None of that is in the log, so a server that has just started knows nothing
// of it. Presence follows the log outside the writer, and does not know the writer.
package presence
