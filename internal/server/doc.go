// Package server is the one writer of the log. It folds the log into its
// state, takes the requests of nodes and operators one after another, appends
// what they and the engine decide, and only then answers.
//
// All requests that are waiting when an append ends are handled together: each
// sees the effects of those before it, their events go into one append, and
// their answers leave when that append is on disk (group commit). A refused
// append ends the writer, because another writer has written. Everything in
// memory is then worthless and Run returns.
//
// Requests that only read do not go to the writer. Package explain answers them from a
// second fold, which follows what is on disk (package replica, ADR 0016).
//
// Rejected: a lock around the state with an append per request. It either
// holds the lock during the fsync, or lets an answer leave before the append
// that it depends on.
package server
