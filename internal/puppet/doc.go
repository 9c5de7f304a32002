// Package puppet is the Go side of a run's directory (docs/run-protocol.md). The package finds the node's Puppet, and
// starts the launcher so that it survives the agent's end. After a restart, the package finds the launcher again and
// follows what the launcher writes. The package judges how the run ended by the files that the launcher left.
//
// The report of this run and the phase that the run reached decide the outcome. Exit codes are only a cross-check.
// Rejected: exit codes as the source (1 means compile error, cycle, lock held or failed prerun; 2 is also the exit code
// of a run with an old catalog), and last_run_report.yaml (after a failed compile, this is still the previous, good
// report).
package puppet
