package app

import "syscall"

// The server may open a limited number of files, and each connection needs one. The server divides this number, so that
// clients of one port leave enough files for the other port and for the log. On the operators' port, 1/16 is for
// connections that have not finished TLS, 1/32 is for clients without a certificate, and 1/16 is for operators. On the
// bus, 1/4 is for connections that are not authenticated yet, and 1/2 is for authenticated connections. The remaining
// files are for the log.

// partOfFiles returns the number of files that this process may open, divided by n. The result is at least 1. The
// argument `most` is an upper limit for the result.
func partOfFiles(n, most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(uint64(most), max(1, limit.Cur/uint64(n))))
}
