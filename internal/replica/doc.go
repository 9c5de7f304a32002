// Package replica has the readers' fold, which is separate from the writer's (ADR 0016). The package gets only
// events that are on disk. The package uses neither the log nor the code of the readers.
package replica
