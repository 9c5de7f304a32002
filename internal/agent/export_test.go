package agent

import (
	"time"

	"github.com/tutti-project/tutti/wire"
)

// ReadSealed and WriteSealed read and write the agent's own files.
func ReadSealed[T any](path string) (T, error) { return readSealed[T](path) }

// WriteSealed writes one of the agent's own files; see ReadSealed.
func WriteSealed(path string, value any) error { return writeSealed(path, value) }

// Accept serves a socket.
var Accept = accept

// WriteBegun leaves the files of an agent that was killed after it noted the
// beginning of an order.
func WriteBegun(dir string, claimed wire.Claimed) error {
	return New(Options{Dir: dir}).beginOnce(claimed)
}

// Postponed postpones the runs in these directories, and returns how many runs the agent must count
// later.
func Postponed(dirs ...string) int {
	var l ledger
	for _, dir := range dirs {
		l.postpone(dir)
	}
	return len(l.unsettled)
}

// Newest returns the time of the last change below a directory, as the agent sees it at the given time.
func Newest(dir string, now time.Time) time.Time {
	_, newest := stamp([]string{dir}, now)
	return newest
}
