package app

import "syscall"

// The server divides the number of files that it may open, so that clients of one port leave enough files for the other
// port and for the log. On the operators' port, connections that have not finished TLS get a sixteenth, clients without
// a certificate get a 32nd, and operators get a sixteenth. On the bus, connections that are not authenticated yet get a
// quarter, and authenticated connections get a half. The log gets the remaining files.

// partOfFiles returns the number of files that this process may open, divided by n. The result is at least 1. The
// argument `most` is an upper limit for the result.
func partOfFiles(n, most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(uint64(most), max(1, limit.Cur/uint64(n))))
}
