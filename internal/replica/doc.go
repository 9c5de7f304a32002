// Package replica is the readers' fold, beside the writer (ADR 0016). It gets events that are on disk. It knows neither the log
// nor its readers.
package replica
