package powerfs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Image is the content of a file system. It never changes.
type Image map[uint64]inode

// inode is one file, directory or link of an image.
type inode struct {
	mode    uint32 // type and permissions
	mtime   time.Time
	data    []byte
	link    string
	entries map[string]uint64
}

// Read returns the content of a file, and whether the file exists.
func (i Image) Read(name string) ([]byte, bool) {
	ino := uint64(fuse.FUSE_ROOT_ID)
	for _, part := range splitPath(name) {
		next, ok := i[ino].entries[part]
		if !ok {
			return nil, false
		}
		ino = next
	}
	return i[ino].data, true
}

// Equal reports whether two images have the same content under the same names.
func (i Image) Equal(other Image) bool {
	return i.equal(other, fuse.FUSE_ROOT_ID, fuse.FUSE_ROOT_ID)
}

func (i Image) equal(other Image, a, b uint64) bool {
	x, y := i[a], other[b]
	if x.mode != y.mode || x.link != y.link || string(x.data) != string(y.data) || len(x.entries) != len(y.entries) {
		return false
	}
	for name, child := range x.entries {
		theirs, ok := y.entries[name]
		if !ok || !i.equal(other, child, theirs) {
			return false
		}
	}
	return true
}

// Load returns an image of a directory of the machine.
func Load(dir string) (Image, error) {
	out := Image{}
	inos := map[string]uint64{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		ino := uint64(len(inos) + fuse.FUSE_ROOT_ID)
		inos[name] = ino
		if name != dir {
			out[inos[filepath.Dir(name)]].entries[d.Name()] = ino
		}
		out[ino], err = load(name, info)
		return err
	})
	return out, err
}

func load(name string, info fs.FileInfo) (inode, error) {
	i := inode{mode: uint32(info.Mode().Perm()), mtime: info.ModTime()}
	var err error
	switch info.Mode().Type() {
	case fs.ModeDir:
		i.mode, i.entries = i.mode|fuse.S_IFDIR, map[string]uint64{}
	case fs.ModeSymlink:
		i.mode |= fuse.S_IFLNK
		i.link, err = os.Readlink(name)
	case 0:
		i.mode |= fuse.S_IFREG
		i.data, err = os.ReadFile(filepath.Clean(name))
	default:
		err = fmt.Errorf("%s: an image has no %s", name, info.Mode().Type())
	}
	return i, err
}

func splitPath(name string) []string {
	var out []string
	for name = path.Clean("/" + name); name != "/"; name = path.Dir(name) {
		out = append(out, path.Base(name))
	}
	slices.Reverse(out)
	return out
}

func (i inode) node(ino uint64) *node {
	return &node{ino: ino, mode: i.mode, mtime: i.mtime, data: i.data, link: i.link, entries: maps.Clone(i.entries)}
}

// node is a file, directory or link as programs see it. The data is replaced but never modified, so images can share
// it.
type node struct {
	ino     uint64
	mode    uint32
	mtime   time.Time
	data    []byte
	link    string
	entries map[string]uint64

	path   string // the last path of the node, for the trace
	linked bool   // it has a name
}

func (n *node) dir() bool     { return n.mode&syscall.S_IFMT == fuse.S_IFDIR }
func (n *node) regular() bool { return n.mode&syscall.S_IFMT == fuse.S_IFREG }

func (n *node) inode() inode {
	return inode{mode: n.mode, mtime: n.mtime, data: n.data, link: n.link, entries: maps.Clone(n.entries)}
}

// The method `name` notes the paths of a node and of the nodes below it, for the trace.
func (f *FS) name(ino uint64, at string) {
	n := f.nodes[ino]
	n.path, n.linked = at, true
	for name, child := range n.entries {
		f.name(child, path.Join(at, name))
	}
}

// The method `all` returns the content that programs see, as an image.
func (f *FS) all() Image {
	out := make(Image, len(f.nodes))
	for ino, n := range f.nodes {
		out[ino] = n.inode()
	}
	return out
}

// The method `with` returns an image in which one file has other content.
func (i Image) with(ino uint64, data []byte) Image {
	out := maps.Clone(i)
	changed := out[ino]
	changed.data = data
	out[ino] = changed
	return out
}
