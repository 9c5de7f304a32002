// Package fold is the fold of the whole log: jobs and runs (engine), data, what each node
// needs (converge), and who belongs to the fleet (Registry). It is pure. The
// writer folds what it appends. Readers have a fold of their own, which has only
// events that are in the log (ADR 0016).
package fold
