// Package replica is the fold that readers look at beside the writer (ADR 0016). It gets what is on disk, and knows neither the log
// nor who asks.
package replica
