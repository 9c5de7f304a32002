// Package space measures the free space of a file system. A writer can therefore refuse
// new work while there is still space to finish what has begun.
package space

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti"
)

// Room is the space of a file system in bytes, for users without privileges.
type Room struct{ Free, Total uint64 }

// Of returns the space of a directory's file system. If the file system has no free
// inodes, Of returns a free space of 0.
func Of(dir string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Room{}, fmt.Errorf("look at the free space of %s: %w", dir, err)
	}
	block := uint64(st.Bsize) //nolint:unconvert // the type differs on other systems
	r := Room{Free: uint64(st.Bavail) * block, Total: uint64(st.Blocks) * block}
	if st.Files > 0 && st.Ffree == 0 {
		r.Free = 0
	}
	return r, nil
}

// Full reports whether an error says that a disk is full. Full also recognizes the error
// if only its text is left.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		err != nil && strings.Contains(err.Error(), syscall.ENOSPC.Error())
}

const (
	// A reserve is at most the disk's size divided by `share`.
	share = 20
	// If the free space is less than the reserve divided by `bottom`, no work is possible.
	bottom = 16
	// lookEvery is how old the last measurement may be.
	lookEvery = time.Second
)

// Reserve is space in a directory that new work must leave free. With this space, work that has
// begun can finish. Any number of goroutines may use a Reserve.
type Reserve struct {
	whose string // whose disk it is, as in `the server's disk is full`
	dir   string
	most  uint64

	mu   sync.Mutex
	seen time.Time
	room Room
	err  error
}

// NewReserve returns a reserve of as many bytes as the argument `most` says. If a twentieth
// of the disk is less than that, the reserve is a twentieth of the disk.
func NewReserve(whose, dir string, most uint64) *Reserve {
	return &Reserve{whose: whose, dir: dir, most: most}
}

// Check returns CodeUnavailable if there is no room for new work. Check looks at the disk
// at most once a second. If the file system cannot be queried, Check returns nil, because
// the next write reports the problem.
func (r *Reserve) Check() error { return r.below(1) }

// Exhausted returns an error if there is no room even for work that has begun.
func (r *Reserve) Exhausted() error { return r.below(bottom) }

// Room returns the free space and the reserve, in bytes. Room looks at the disk at most once a second.
func (r *Reserve) Room() (free, keep uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	return r.room.Free, r.keep(), r.err
}

// The method `look` looks at the disk if the last measurement is too old. The caller holds the lock.
func (r *Reserve) look() {
	if now := time.Now(); now.Sub(r.seen) >= lookEvery {
		r.room, r.err = Of(r.dir)
		r.seen = now
	}
}

func (r *Reserve) keep() uint64 { return min(r.most, r.room.Total/share) }

// Stale makes the next check look at the disk again. Stale must be called after an error
// said that the disk is full.
func (r *Reserve) Stale() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = time.Time{}
}

func (r *Reserve) below(part uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	keep := r.keep()
	if r.err != nil || r.room.Free >= keep/part {
		return nil
	}
	return tutti.Errorf(tutti.CodeUnavailable, "%s disk is full: %s free in %s, and %s are reserved to finish running work; after you free some space, work goes on by itself",
		r.whose, Size(r.room.Free), r.dir, Size(keep))
}

// Size is a number of bytes for people.
func Size(bytes uint64) string {
	const mib = 1 << 20
	switch {
	case bytes < mib:
		return fmt.Sprintf("%d KiB", bytes>>10)
	case bytes < 10*mib:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	case bytes < 10<<10*mib:
		return fmt.Sprintf("%d MiB", bytes/mib)
	}
	return fmt.Sprintf("%d GiB", bytes/(mib<<10))
}
