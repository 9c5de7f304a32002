// Package engine decides what a job does next. It is a pure fold: State.Apply
// takes the log's events one by one, State.Decide says which events should be
// appended now. It has no clock, no I/O and no goroutine, so execution, resume
// after a crash, tests and every view of a job share it: the state after any
// prefix of the log is a state to go on from.
//
// The life of a node inside a run step is
//
//	pending → active (RunWanted … RunFinished or RunLost) → done | failed
//
// with one way back: a run that the gate stopped makes the node pending again,
// with one attempt more. A step has ended when all its nodes have; a step
// that failed lets nothing after it begin, but neither stops the other nodes of
// its own step nor branches that do not depend on it.
package engine
