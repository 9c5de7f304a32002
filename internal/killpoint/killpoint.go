// Package killpoint names points in the code at which a test can kill the process. A point is at
// each place where a kill makes a difference, for example before and after a file's fsync or an
// append. A test first runs the process once and records the points that it passes. Then the test
// runs the process once for each point and kills it there. The test therefore covers all ways in
// which the process can die.
//
// Without the build tag killpoints, Here is empty. With the tag, the environment
// determines what Here does:
//
//	TUTTI_KILLPOINT=NAME#3     the process kills itself as it passes NAME for the third time
//	TUTTI_KILLPOINTS_TO=FILE   the names of the points passed are added to FILE
//
// We rejected kills after some milliseconds. They test only a few moments, and other moments on each machine. We also
// rejected kills after a number of system calls. Such a number has no meaning and changes with Go's runtime.
package killpoint

// The constants are the names of the environment variables.
const (
	// At is the variable with the point and the number of the pass at which the process dies.
	At = "TUTTI_KILLPOINT"
	// To is the variable with the file to which the names of the passed points are appended.
	To = "TUTTI_KILLPOINTS_TO"
)

// SyncAttr is the extended attribute that a program with the build tag sets wherever it
// calls syncfs(2). FUSE does not pass on syncfs, but package powerfs must know of the
// call.
const SyncAttr = "user.tutti.syncfs"
