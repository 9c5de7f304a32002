// Package puppet is the Go side of a run's directory (docs/run-protocol.md):
// it finds the node's Puppet, starts the launcher so that it outlives whoever
// started it, finds a launcher again after a restart, follows what it writes,
// and judges how the run ended from what it left.
//
// The report of this very run and the phase reached decide; exit codes are a
// cross-check. Rejected: exit codes as the source (1 means compile error, cycle,
// lock held or failed prerun; 2 is also what a run with an old catalog ends
// with), and last_run_report.yaml (a failed compile leaves the previous, good
// one in place).
package puppet
