// Package replica has the readers' fold, which is separate from the writer's (ADR 0016). The package gets only
// events that are on disk. The package knows neither the log nor the code that reads.
package replica
