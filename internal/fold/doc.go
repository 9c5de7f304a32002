// Package fold is the fold of the whole log. The package has jobs and runs (engine), data, the needs of each
// node (converge), and the members of the fleet (Registry). It is pure. The writer folds the events that it
// appends. Readers have their own fold, which contains only events that are on disk (ADR 0016).
package fold
