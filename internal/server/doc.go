// Package server connects the parts of the server: the writer, the handlers of nodes (package nodes) and of operators
// (package operators), and the readers (package explain). Readers answer from a second fold without the writer (ADR
// 0016). The package itself decides what follows from events. After each batch it lets the engine, the converge steps
// and the waits decide, and after each append it rings doorbells.
package server
