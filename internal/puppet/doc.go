// Package puppet is the Go side of a run's directory (docs/run-protocol.md). The package finds the node's Puppet, and
// starts the launcher so that it survives the agent's end. After a restart, the package finds the launcher again and
// follows what the launcher writes. The package finds out from the launcher's files how the run ended.
//
// The report of this run and the phase that the run reached decide the outcome. Exit codes are only a cross-check.
// Rejected: exit codes as the source, because 1 means compile error, cycle, lock held or failed prerun, and 2 is also
// the exit code of a run with an old catalog. Also rejected: last_run_report.yaml, because after a failed compile this
// file is still the previous, good report.
package puppet
