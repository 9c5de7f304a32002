package app

import "syscall"

// The files that the server may open are divided, so that clients of one port leave
// enough for the other port and for the log. On the operators' port, connections before TLS get a
// sixteenth, clients without a certificate a 32nd, and operators a sixteenth. On the bus, connections that are not
// admitted yet get a quarter, and admitted ones a half. The rest is for the log.

// partOfFiles returns the nth part of the number of files that this process may open, but at least 1 and
// at most most.
func partOfFiles(n, most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(uint64(most), max(1, limit.Cur/uint64(n))))
}
