// Package engine decides what a job does next. The package is a pure fold. State.Apply
// takes the log's events one by one. State.Decide returns the events that the server
// should append now. The package has no clock, no I/O and no goroutine. Therefore execution, recovery after a crash,
// tests and all views of a job use the same code. Execution can continue from the state after any prefix of the log.
//
// The life of a node inside a run step is
//
//	pending → active (RunWanted … RunFinished or RunLost) → done | failed
//
// There is one way back. When the gate stops a run, the node is pending again and
// compiles once more. A step ends when all its nodes have ended. After a failed step,
// nothing that depends on the step begins. The other nodes of the step, and steps that do
// not depend on it, continue.
package engine
