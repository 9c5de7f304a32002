// Package agent is the part of Tutti that runs on each node. The package claims runs, fetches signed code by
// digest, starts Puppet through a Runner, and answers Puppet's questions on the run's socket. The package keeps
// every outcome on disk until the server has it.
//
// Everything about one run is in one directory, runs/<id>:
//
//	run.json        the marker: from here on the run is never started again
//	answers.jsonl   what it was told (a question asked twice has one answer)
//	gate.json       what it handed over at its gate, and the verdict
//	publish.jsonl   what it published while the server was away
//	result.json     how it ended, and the digests of the other files, which are on
//	                disk before it; the outbox is the directories that have one
//
// Each line and each file that the agent writes for itself ends with a checksum.
//
// After a start, the agent reads these files, finds out whether the Puppet process is still running or how it ended,
// and continues. The outbox is not a database, because the agent needs a directory for each run anyway, and people
// can read the files in the directory.
package agent
