package app

import "syscall"

// The files that the server may open are shared out, so that whoever comes to one port leaves
// enough for the other one and for the log. In front of the operators' port are at most a
// sixteenth of them, behind it a 32nd without a certificate and a sixteenth with one, in front of the bus a quarter, and on the
// bus a half. The rest is the log's.

// partOfFiles is how many connections the nth part of the files that this process may open allows,
// at most so many.
func partOfFiles(n, most int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(uint64(most), max(1, limit.Cur/uint64(n))))
}
