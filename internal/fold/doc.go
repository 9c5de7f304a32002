// Package fold is the fold of the whole log: jobs and runs (engine), data, who
// needs what (converge), and who belongs to the fleet (Registry). It is pure. The
// writer folds what it appends; readers have a fold of their own, which is always
// one that the log has (ADR 0016).
package fold
