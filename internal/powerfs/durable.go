package powerfs

import (
	"maps"
	"slices"
)

// entry is a change of directory entries that is not on disk yet. If only `to` is set, a name was made. If
// only `from` is set, a name was removed. If both are set, a name was moved.
type entry struct {
	ino      uint64
	from, to slot
}

// slot is a name in a directory. The zero slot means no name.
type slot struct {
	dir  uint64
	name string
}

// The method `needs` reports whether the change `earlier` must be on disk before the change `later`.
func (later *entry) needs(earlier *entry) bool {
	for _, s := range []slot{later.from, later.to} {
		if s == (slot{}) {
			continue
		}
		if s == earlier.from || s == earlier.to || s.dir == earlier.ino {
			return true
		}
	}
	return false
}

// The method `sync` writes a file or directory to disk: the content of a file or the entries of a directory. It
// also writes the entry of this file or directory if the entry is new. The caller holds f.mu.
func (f *FS) sync(ino uint64) {
	for {
		i := slices.IndexFunc(f.pending, func(e *entry) bool { return e.ino == ino || e.from.dir == ino || e.to.dir == ino })
		if i < 0 {
			break
		}
		f.commit(i)
	}
	n := f.nodes[ino]
	if _, there := f.durable[ino]; !there || !n.regular() {
		return // the file no longer has a name
	}
	f.durable = maps.Clone(f.durable)
	f.durable[ino] = n.inode()
}

// syncAll writes everything to disk.
func (f *FS) syncAll() {
	f.pending = nil
	f.durable = f.all()
}

// commit writes the i-th pending change to disk, after the changes that it needs.
func (f *FS) commit(i int) {
	e := f.pending[i]
	for {
		k := slices.IndexFunc(f.pending[:slices.Index(f.pending, e)], e.needs)
		if k < 0 {
			break
		}
		f.commit(k)
	}
	f.pending = slices.DeleteFunc(f.pending, func(p *entry) bool { return p == e })
	f.durable = maps.Clone(f.durable)
	if e.from != (slot{}) {
		dir := f.durable[e.from.dir]
		dir.entries = maps.Clone(dir.entries)
		delete(dir.entries, e.from.name)
		f.durable[e.from.dir] = dir
	}
	if e.to == (slot{}) {
		return
	}
	dir := f.durable[e.to.dir]
	dir.entries = maps.Clone(dir.entries)
	dir.entries[e.to.name] = e.ino
	f.durable[e.to.dir] = dir
	if _, there := f.durable[e.ino]; !there {
		fresh := f.nodes[e.ino].inode()
		fresh.data = nil // only the name is on disk, but not the content
		if fresh.entries != nil {
			fresh.entries = map[string]uint64{}
		}
		f.durable[e.ino] = fresh
	}
}

// torn returns the images that a disk may have if only a part of a write reached it.
func (f *FS) torn(n *node, before, written []byte, offset int64) []Image {
	half := overwrite(before, written[:len(written)/2], offset)
	return []Image{f.all().with(n.ino, half), f.zeros()}
}

// zeros returns the content that programs see, but with zeros in place of all data that was added after the
// last fsync of each file.
func (f *FS) zeros() Image {
	out := f.all()
	for ino, i := range out {
		if had := len(f.durable[ino].data); len(i.data) > had {
			i.data = append(slices.Clone(i.data[:had]), make([]byte, len(i.data)-had)...)
			out[ino] = i
		}
	}
	return out
}

// overwrite returns a copy of data in which `with` replaces the bytes from offset on.
func overwrite(data, with []byte, offset int64) []byte {
	out := make([]byte, max(int64(len(data)), offset+int64(len(with))))
	copy(out, data)
	copy(out[offset:], with)
	return out
}
