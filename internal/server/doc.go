// Package server puts the server together: the writer, the handlers of nodes (package nodes) and of operators (package
// operators), and the readers (package explain), which answer from a second fold without the writer (ADR 0016).
// It says itself only what follows from events: what the engine, converge steps and waits decide after each batch, and
// which doorbells ring after an append.
package server
