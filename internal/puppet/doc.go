// Package puppet is the Go side of a run's directory (docs/run-protocol.md). It finds the node's Puppet, and starts the
// launcher in such a way that it outlives the agent. It finds a launcher again after a restart, follows what it writes,
// and judges how the run ended by the files that it left.
//
// The report of the same run and the phase that it reached decide. Exit codes are a cross-check. Rejected: exit codes
// as the source (1 means compile error, cycle, lock held or failed prerun; 2 is also the exit code of a run with an old
// catalog), and last_run_report.yaml (after a failed compile it is still the previous, good one).
// one in place).
package puppet
