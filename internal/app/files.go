package app

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"time"
)

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

const (
	// mostReserved limits how many files a fileReserve keeps.
	mostReserved = 1024
	// reserveEvery is the pause between two looks at the open files while the reserve is in use.
	reserveEvery = 20 * time.Millisecond
	// reserveTold is how often the server logs at most that it uses the reserve.
	reserveTold = time.Minute
)

// fileReserve keeps an eighth of the process's files for everything but new connections to the bus. The bus closes
// connections that exceed its limits later than it accepts them. When a large number of strangers connects, the bus can
// therefore use up all files for a moment, and then the log could not open its own files.
//
// The reserve is the distance between the soft and the hard limit of RLIMIT_NOFILE. The bus nearly always meets
// the soft limit first, because it opens many more files than the log.
type fileReserve struct {
	logger    *slog.Logger
	low, high syscall.Rlimit
	told      time.Time
}

// reserveFiles lowers the soft limit of this process. A second call in the same process changes nothing.
func reserveFiles(logger *slog.Logger) (*fileReserve, error) {
	r := &fileReserve{logger: logger}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r.high); err != nil {
		return nil, err
	}
	r.high.Cur = r.high.Max
	r.low = r.high
	r.low.Cur -= min(r.high.Max/8, mostReserved)
	return r, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r.low)
}

// The method `wait` is for the goroutine that accepts the connections to the bus. It opens the reserve for the rest of
// the process, and returns when so many files are closed that the reserve is whole again and one file in sixteen
// is free. If ctx ends, the method returns at once.
func (r *fileReserve) wait(ctx context.Context) {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r.high); err != nil {
		r.logger.Error("the reserve of files cannot be opened", "error", err)
		return
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r.low); err != nil {
			r.logger.Error("the reserve of files cannot be closed", "error", err)
		}
	}()
	if time.Since(r.told) > reserveTold {
		r.told = time.Now()
		r.logger.Warn("too many files are open, so new connections to the bus wait")
	}
	ticker := time.NewTicker(reserveEvery)
	defer ticker.Stop()
	for uint64(openFiles()) > r.low.Cur/16*15 {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// openFiles returns the number of open files of this process. On a system without /proc, it returns 0.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
