package powerfs

import (
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/tutti-project/tutti/internal/killpoint"
)

// ok is the status of success.
const ok = fuse.OK

// reading executes a call that changes nothing.
func (f *FS) reading(do func() fuse.Status) fuse.Status {
	f.mu.Lock()
	if f.off {
		return f.hang()
	}
	defer f.mu.Unlock()
	return do()
}

// The method `hang` waits like a call on a disk without power. It unlocks f.mu.
func (f *FS) hang() fuse.Status {
	f.mu.Unlock()
	<-f.failing
	return fuse.EIO
}

// The method `step` executes a call that changes something. If the power fails at this
// step, the call hangs.
func (f *FS) step(op string, ino uint64, do func() ([]Image, fuse.Status)) fuse.Status {
	f.mu.Lock()
	if !f.off && f.steps+1 == f.cutAt {
		f.off = true
		close(f.cut)
	}
	if f.off {
		return f.hang()
	}
	defer f.mu.Unlock()
	if f.nodes[ino] == nil {
		return fuse.ENOENT
	}
	torn, status := do()
	if status != ok {
		return status
	}
	f.steps++
	if f.watch != nil {
		f.watch(Step{N: f.steps, Op: op, Path: f.nodes[ino].path, Durable: f.durable, Torn: torn})
	}
	return ok
}

func (f *FS) attr(n *node, out *fuse.Attr) {
	links := uint32(1)
	if n.dir() {
		links = 2
	}
	*out = fuse.Attr{Ino: n.ino, Mode: n.mode, Size: uint64(len(n.data) + len(n.link)), Blocks: uint64(len(n.data)+511) / 512, Blksize: 4096, Nlink: links}
	out.SetTimes(&n.mtime, &n.mtime, &n.mtime)
}

func (f *FS) entryOut(n *node, out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.ino, 1
	out.SetEntryTimeout(time.Hour)
	out.SetAttrTimeout(time.Hour)
	f.attr(n, &out.Attr)
}

// Lookup implements fuse.RawFileSystem, like the following methods.
func (f *FS) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return f.reading(func() fuse.Status {
		ino, there := f.nodes[in.NodeId].entries[name]
		if !there {
			return fuse.ENOENT
		}
		f.entryOut(f.nodes[ino], out)
		return ok
	})
}

// GetAttr returns attributes.
func (f *FS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.reading(func() fuse.Status {
		out.SetTimeout(time.Hour)
		f.attr(f.nodes[in.NodeId], &out.Attr)
		return ok
	})
}

// SetAttr sets mode, time and size. SetAttr does not store owners.
func (f *FS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.step("setattr", in.NodeId, func() ([]Image, fuse.Status) {
		n := f.nodes[in.NodeId]
		if mode, there := in.GetMode(); there {
			n.mode = n.mode&syscall.S_IFMT | mode&0o7777
		}
		if size, there := in.GetSize(); there {
			n.data = append(slices.Clone(n.data[:min(int(size), len(n.data))]), make([]byte, max(0, int(size)-len(n.data)))...)
			n.mtime = time.Now()
		}
		if mtime, there := in.GetMTime(); there {
			n.mtime = mtime
		}
		out.SetTimeout(time.Hour)
		f.attr(n, &out.Attr)
		return nil, ok
	})
}

// The method `make` adds a new file, directory or link, and its entry.
func (f *FS) make(op string, dir uint64, name string, fresh *node, out *fuse.EntryOut) fuse.Status {
	return f.step(op, dir, func() ([]Image, fuse.Status) {
		d := f.nodes[dir]
		if _, there := d.entries[name]; there {
			return nil, fuse.Status(syscall.EEXIST)
		}
		f.last++
		fresh.ino, fresh.mtime = f.last, time.Now()
		fresh.path, fresh.linked = path.Join(d.path, name), true
		f.nodes[fresh.ino] = fresh
		f.move(&entry{ino: fresh.ino, to: slot{dir, name}})
		f.entryOut(fresh, out)
		return nil, ok
	})
}

// move changes entries. Programs see the change at once, but it reaches the disk later.
func (f *FS) move(e *entry) {
	if e.from != (slot{}) {
		d := f.nodes[e.from.dir]
		delete(d.entries, e.from.name)
		d.mtime = time.Now()
		f.nodes[e.ino].linked = false
	}
	if e.to != (slot{}) {
		d := f.nodes[e.to.dir]
		if old, there := d.entries[e.to.name]; there {
			f.nodes[old].linked = false
		}
		d.entries[e.to.name] = e.ino
		d.mtime = time.Now()
		f.name(e.ino, path.Join(d.path, e.to.name))
	}
	f.pending = append(f.pending, e)
}

// Mknod makes sockets and files.
func (f *FS) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.make("mknod", in.NodeId, name, &node{mode: in.Mode}, out)
}

// Mkdir makes a directory.
func (f *FS) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return f.make("mkdir", in.NodeId, name, &node{mode: fuse.S_IFDIR | in.Mode&0o7777, entries: map[string]uint64{}}, out)
}

// Symlink makes a link.
func (f *FS) Symlink(_ <-chan struct{}, in *fuse.InHeader, to, name string, out *fuse.EntryOut) fuse.Status {
	return f.make("symlink", in.NodeId, name, &node{mode: fuse.S_IFLNK | 0o777, link: to}, out)
}

// Create makes a file and opens it.
func (f *FS) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	out.Fh = handle(in.Flags)
	return f.make("create", in.NodeId, name, &node{mode: fuse.S_IFREG | in.Mode&0o7777}, &out.EntryOut)
}

// Unlink removes a file's entry.
func (f *FS) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.step("unlink", in.NodeId, func() ([]Image, fuse.Status) {
		ino, there := f.nodes[in.NodeId].entries[name]
		if !there {
			return nil, fuse.ENOENT
		}
		if len(f.nodes[ino].entries) > 0 {
			return nil, fuse.Status(syscall.ENOTEMPTY)
		}
		f.move(&entry{ino: ino, from: slot{in.NodeId, name}})
		return nil, ok
	})
}

// Rmdir removes an empty directory.
func (f *FS) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return f.Unlink(cancel, in, name)
}

// Rename moves an entry. Rename replaces an entry that has the new name.
func (f *FS) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	return f.step("rename", in.Newdir, func() ([]Image, fuse.Status) {
		if in.Flags != 0 {
			return nil, fuse.EINVAL
		}
		ino, there := f.nodes[in.NodeId].entries[from]
		if !there {
			return nil, fuse.ENOENT
		}
		if old, there := f.nodes[in.Newdir].entries[to]; there && len(f.nodes[old].entries) > 0 {
			return nil, fuse.Status(syscall.ENOTEMPTY)
		}
		f.move(&entry{ino: ino, from: slot{in.NodeId, from}, to: slot{in.Newdir, to}})
		return nil, ok
	})
}

// Readlink returns the target of a link.
func (f *FS) Readlink(_ <-chan struct{}, in *fuse.InHeader) (to []byte, status fuse.Status) {
	status = f.reading(func() fuse.Status { to = []byte(f.nodes[in.NodeId].link); return ok })
	return to, status
}

// handle returns the handle of an open file: 1 if each write is also an fsync, and 0 if it is not.
func handle(flags uint32) uint64 {
	if flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0 {
		return 1
	}
	return 0
}

// Open opens a file.
func (f *FS) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return f.reading(func() fuse.Status { out.Fh = handle(in.Flags); return ok })
}

// Read returns content.
func (f *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, _ []byte) (result fuse.ReadResult, status fuse.Status) {
	status = f.reading(func() fuse.Status {
		data := f.nodes[in.NodeId].data
		from := min(int(in.Offset), len(data))
		result = fuse.ReadResultData(data[from:min(from+int(in.Size), len(data))])
		return ok
	})
	return result, status
}

// Write writes content. If the file was opened with O_SYNC, the content is then on disk.
func (f *FS) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	status := f.step("write", in.NodeId, func() ([]Image, fuse.Status) {
		n := f.nodes[in.NodeId]
		before, data := n.data, slices.Clone(data)
		n.data, n.mtime = overwrite(before, data, int64(in.Offset)), time.Now()
		if f.watch == nil {
			return nil, ok
		}
		return f.torn(n, before, data, int64(in.Offset)), ok
	})
	if status == ok && in.Fh == 1 {
		status = f.fsync(in.NodeId)
	}
	return uint32(len(data)), status
}

func (f *FS) fsync(ino uint64) fuse.Status {
	return f.step("fsync", ino, func() ([]Image, fuse.Status) { f.sync(ino); return nil, ok })
}

// Fsync writes a file to disk.
func (f *FS) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status { return f.fsync(in.NodeId) }

// FsyncDir writes a directory's entries to disk.
func (f *FS) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status { return f.fsync(in.NodeId) }

// SetXAttr implements only syncfs.
func (f *FS) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, attr string, _ []byte) fuse.Status {
	if attr != killpoint.SyncAttr {
		return fuse.Status(syscall.ENOTSUP)
	}
	return f.step("syncfs", fuse.FUSE_ROOT_ID, func() ([]Image, fuse.Status) { f.syncAll(); return nil, ok })
}

// OpenDir opens a directory.
func (f *FS) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return f.reading(func() fuse.Status { return ok })
}

// ReadDir lists the present entries of a directory, sorted by inode.
func (f *FS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return f.reading(func() fuse.Status {
		d := f.nodes[in.NodeId]
		names := make([]string, 0, len(d.entries))
		for name := range d.entries {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return int(d.entries[a]) - int(d.entries[b]) })
		for _, name := range names {
			// The position in the list is the inode, because the inode does not change when
			// other entries are removed.
			ino := d.entries[name]
			if ino <= in.Offset {
				continue
			}
			if !out.AddDirEntry(fuse.DirEntry{Name: name, Ino: ino, Mode: f.nodes[ino].mode, Off: ino}) {
				break
			}
		}
		return ok
	})
}

// Flush is called by close(2). It does nothing.
func (f *FS) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status {
	return f.reading(func() fuse.Status { return ok })
}

// StatFs reports a fixed amount of free space.
func (f *FS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{Blocks: 1 << 22, Bfree: 1 << 22, Bavail: 1 << 22, Files: 1 << 20, Ffree: 1 << 20, Bsize: 4096, NameLen: 255, Frsize: 4096}
	return ok
}
