// Package powerfs is a file system for tests that simulates a power failure. The package keeps the content that
// programs see, and also the content that a disk would have. The package is as strict as a real file system may
// be:
//
//   - the content of a file is on disk after the file is fsynced (or opened with O_SYNC or O_DSYNC), and never before;
//   - the same fsync also writes the file's entry and the entries of the directories above it, if they are new,
//     as on ext4;
//   - a made, removed or renamed entry is on disk after the next fsync of its directory, or of the file itself;
//   - sync_file_range does nothing. syncfs writes everything. FUSE does not pass
//     syncfs on, so programs built with the tag killpoints report it (killpoint.SyncAttr).
//
// Killing a process tests none of this, because the page cache survives it. Rejected: dm-flakey (not every kernel has
// it), and tracing of system calls (it shows the order of the calls, but not whether the next start works with the
// remaining files).
package powerfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Step is one change of the file system.
type Step struct {
	N    int
	Op   string // write, fsync, rename, …
	Path string
	// Durable is the content that is left if the power fails after the step.
	Durable Image
	// Torn are other contents that a real disk may leave. In one image, everything is on disk except half of this
	// write. In the other image, everything is on disk, but the data that was appended since each file's last fsync
	// is zeros.
	Torn []Image
}

// FS is the file system. Any number of goroutines may use it.
type FS struct {
	fuse.RawFileSystem

	mu      sync.Mutex
	nodes   map[uint64]*node
	last    uint64 // the last inode number that was used
	pending []*entry
	durable Image
	steps   int
	watch   func(Step)
	cutAt   int
	cut     chan struct{} // closed when the power is lost
	off     bool
	failing chan struct{} // closed when hanging calls may fail
}

// New returns a file system with the content of an image, which is all durable. A nil image is
// empty.
func New(image Image) *FS {
	f := &FS{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		nodes:         map[uint64]*node{}, cut: make(chan struct{}), failing: make(chan struct{}),
	}
	if image == nil {
		image = Image{fuse.FUSE_ROOT_ID: {mode: fuse.S_IFDIR | 0o700, entries: map[string]uint64{}}}
	}
	f.durable = image
	for ino, i := range image {
		f.nodes[ino] = i.node(ino)
		f.last = max(f.last, ino)
	}
	f.name(fuse.FUSE_ROOT_ID, "")
	return f
}

// Watch calls w after each step, until Watch is called again. The function w must not use the mounted
// file system.
func (f *FS) Watch(w func(Step)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = w
}

// Steps returns the number of steps so far.
func (f *FS) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps
}

// Durable returns the content that is on disk now.
func (f *FS) Durable() Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.durable
}

// Zeros returns a content that a real disk could have if the power failed now. All names exist, but the data that was
// added to a file since its last fsync is zeros.
func (f *FS) Zeros() Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.zeros()
}

// Unsynced lists the files whose content is not completely on disk.
func (f *FS) Unsynced() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for ino, n := range f.nodes {
		if n.regular() && n.linked && string(f.durable[ino].data) != string(n.data) {
			out = append(out, n.path)
		}
	}
	return out
}

// CutAt makes the power fail in place of the n-th step from now on.
func (f *FS) CutAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutAt = f.steps + n
}

// Lost returns a channel that is closed when the power fails. A process that uses the file system then hangs.
// Kill the process first, then call Fail.
func (f *FS) Lost() <-chan struct{} { return f.cut }

// Fail makes all hanging calls return an error.
func (f *FS) Fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.off {
		f.off = true
		close(f.cut)
	}
	select {
	case <-f.failing:
	default:
		close(f.failing)
	}
}

// Mount mounts the file system at dir, until unmount is called. Mount needs root or fusermount3, and
// /dev/fuse.
func (f *FS) Mount(dir string) (unmount func() error, err error) {
	server, err := fuse.NewServer(f, dir, &fuse.MountOptions{
		FsName: "powerfs", Name: "powerfs", DirectMount: true, DisableReadDirPlus: true, MaxWrite: 1 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("mount FUSE at %s (it needs root and /dev/fuse): %w", dir, err)
	}
	served := make(chan struct{})
	go func() { server.Serve(); close(served) }()
	var stat unix.Stat_t
	unmount = sync.OnceValue(func() error {
		f.Fail()
		// Abort the connection and detach the mount. Every container that is started has a copy of the mount in its
		// own mount namespace. Without the abort, this copy would keep the connection. Abort before the unmount,
		// because later another connection may get the same number.
		if err := abort(unix.Minor(stat.Dev)); err != nil {
			return err
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount FUSE: %w", err)
		}
		<-served
		return nil
	})
	err = server.WaitMount()
	if err == nil {
		err = unix.Stat(dir, &stat)
	}
	if err != nil {
		return nil, errors.Join(err, unmount())
	}
	return unmount, nil
}

// abort ends a connection between the kernel and a FUSE server.
func abort(connection uint32) (err error) {
	dir, err := os.MkdirTemp("", "fusectl")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := unix.Mount("fusectl", dir, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("mount fusectl: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	return os.WriteFile(filepath.Join(dir, strconv.FormatUint(uint64(connection), 10), "abort"), []byte("1"), 0)
}
