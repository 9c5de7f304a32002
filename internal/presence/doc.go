// Package presence is who is there: which machine each key belongs to, when each node was last heard of, what it said then, which run
// it has, and how often it did what it may do only so often. None of that is in the log, and a server that has just started knows nothing
// of it. It follows the log from outside the writer, and knows no writer.
package presence
