// Package space looks at the room on a file system, so that who writes can say
// no while there is still room to end what has begun.
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

// Room is what a file system has, in bytes, for those without privileges.
type Room struct{ Free, Total uint64 }

// Of returns the room on the file system of a directory. One that has no files
// left has no room.
func Of(dir string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Room{}, fmt.Errorf("look at the free space of %s: %w", dir, err)
	}
	block := uint64(st.Bsize) //nolint:unconvert // another type elsewhere
	r := Room{Free: uint64(st.Bavail) * block, Total: uint64(st.Blocks) * block}
	if st.Files > 0 && st.Ffree == 0 {
		r.Free = 0
	}
	return r, nil
}

// Full reports whether an error says that a disk is full, also one that came
// as text.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		err != nil && strings.Contains(err.Error(), syscall.ENOSPC.Error())
}

const (
	// share bounds a reserve on a small disk: a twentieth of it.
	share = 20
	// bottom is the part of a reserve below which nothing can be done.
	bottom = 16
	// lookEvery is how old what was seen may be.
	lookEvery = time.Second
)

// Reserve is the room in a directory that new work does not take, so that what
// has begun can end. Any number of goroutines may use it.
type Reserve struct {
	whose string // as in `the server's disk is full`
	dir   string
	most  uint64

	mu   sync.Mutex
	seen time.Time
	room Room
	err  error
}

// NewReserve keeps most bytes, or a twentieth of the disk if that is less, free
// of new work.
func NewReserve(whose, dir string, most uint64) *Reserve {
	return &Reserve{whose: whose, dir: dir, most: most}
}

// Check says, as CodeUnavailable, that there is no room for new work. It looks
// at most once a second. A file system that cannot be asked has room: whoever
// writes to it says what is wrong.
func (r *Reserve) Check() error { return r.below(1) }

// Exhausted says that there is no room even for what has begun.
func (r *Reserve) Exhausted() error { return r.below(bottom) }

// Stale makes the next look a new one: somebody was told that the disk is full.
func (r *Reserve) Stale() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = time.Time{}
}

func (r *Reserve) below(part uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.seen) >= lookEvery {
		r.room, r.err = Of(r.dir)
		r.seen = now
	}
	keep := min(r.most, r.room.Total/share)
	if r.err != nil || r.room.Free >= keep/part {
		return nil
	}
	return tutti.Errorf(tutti.CodeUnavailable, "%s disk is full: %s free in %s, it keeps %s to finish what has begun; free some space, it goes on by itself",
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
