// Package killpoint names the points of the code between which a process can be
// killed and the difference can be seen: before a file's fsync and after it,
// before an append and after it. A test that passes each of them once and kills
// at each of them in turn has enumerated the ways in which a process can die.
//
// Without the build tag killpoints, Here is empty. With it, the environment says
// what it does:
//
//	TUTTI_KILLPOINT=NAME#3     the process kills itself as it passes NAME for the third time
//	TUTTI_KILLPOINTS_TO=FILE   the names of the points passed are added to FILE
//
// Rejected: to kill after so many milliseconds (a sample, and another one on
// every machine), and to count system calls from outside (the numbers say
// nothing, and change with the runtime).
package killpoint

// The environment's variables.
const (
	// At names the point and the pass at which the process dies.
	At = "TUTTI_KILLPOINT"
	// To names the file that takes the names of the points that are passed.
	To = "TUTTI_KILLPOINTS_TO"
)

// SyncAttr is the extended attribute that a program with the tag sets wherever
// it calls syncfs(2): FUSE does not pass that on, and package powerfs must know.
const SyncAttr = "user.tutti.syncfs"
