package powerfs_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/powerfs"
)

func mount(t *testing.T, f *powerfs.FS) string {
	t.Helper()
	dir := t.TempDir()
	unmount, err := f.Mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file. The flags are further flags for opening the file.
func write(t *testing.T, path, content string, sync bool, flags int) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
	must(t, err)
	_, err = file.WriteString(content)
	must(t, err)
	if sync {
		must(t, file.Sync())
	}
	must(t, file.Close())
}

func TestWhatIsOnDisk(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		do     func(t *testing.T, dir string)
		want   map[string]string // files after the power failure; before `do`, there is only the file "old" with the content "old"
	}{
		"written":      {"the page cache is no disk", func(t *testing.T, d string) { write(t, d+"/a", "1", false, 0) }, map[string]string{"old": "old"}},
		"fsynced":      {"content and name", func(t *testing.T, d string) { write(t, d+"/a", "1", true, 0) }, map[string]string{"old": "old", "a": "1"}},
		"O_SYNC":       {"each write is an fsync", func(t *testing.T, d string) { write(t, d+"/a", "1", false, os.O_SYNC) }, map[string]string{"old": "old", "a": "1"}},
		"directory":    {"names without content", func(t *testing.T, d string) { write(t, d+"/a", "1", false, 0); must(t, durable.SyncDir(d)) }, map[string]string{"old": "old", "a": ""}},
		"overwritten":  {"the old content stays", func(t *testing.T, d string) { write(t, d+"/old", "new", false, 0) }, map[string]string{"old": "old"}},
		"truncated":    {"so does it then", func(t *testing.T, d string) { write(t, d+"/old", "", false, os.O_TRUNC) }, map[string]string{"old": "old"}},
		"removed":      {"the name comes back", func(t *testing.T, d string) { must(t, os.Remove(d+"/old")) }, map[string]string{"old": "old"}},
		"removed, dir": {"or not", func(t *testing.T, d string) { must(t, os.Remove(d+"/old")); must(t, durable.SyncDir(d)) }, map[string]string{}},
		"renamed": {"the fsync before it is the new name's, the rename is not on disk", func(t *testing.T, d string) {
			write(t, d+"/a", "1", true, 0)
			must(t, os.Rename(d+"/a", d+"/old"))
		}, map[string]string{"old": "old", "a": "1"}},
		"renamed, dir": {"now it is", func(t *testing.T, d string) {
			write(t, d+"/a", "1", true, 0)
			must(t, os.Rename(d+"/a", d+"/old"))
			must(t, durable.SyncDir(d))
		}, map[string]string{"old": "1"}},
		"renamed without fsync": {"the classical empty file", func(t *testing.T, d string) {
			write(t, d+"/a", "1", false, 0)
			must(t, os.Rename(d+"/a", d+"/old"))
			must(t, durable.SyncDir(d))
		}, map[string]string{"old": ""}},
		"below": {"a file takes the directories above it along", func(t *testing.T, d string) {
			must(t, os.MkdirAll(d+"/x/y", 0o700))
			write(t, d+"/x/y/a", "1", true, 0)
			write(t, d+"/x/b", "2", false, 0)
		}, map[string]string{"old": "old", "x/y/a": "1"}},
		"durable.WriteFile": {"what the project writes with", func(t *testing.T, d string) { must(t, durable.WriteFile(d+"/old", []byte("1"), 0o600)) }, map[string]string{"old": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			host := t.TempDir()
			write(t, host+"/old", "old", false, 0)
			image, err := powerfs.Load(host)
			must(t, err)
			f := powerfs.New(image)
			c.do(t, mount(t, f))
			got := map[string]string{}
			dir := mount(t, powerfs.New(f.Durable())) // after the power failure
			must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					raw, readErr := os.ReadFile(path)
					rel, _ := filepath.Rel(dir, path)
					got[rel], err = string(raw), readErr
				}
				return err
			}))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}

func TestThePowerIsLostInThePlaceOfAStep(t *testing.T) {
	f := powerfs.New(nil)
	dir := mount(t, f)
	write(t, dir+"/a", "1", true, 0)
	f.CutAt(2) // the new file exists, but its content is not written
	ended := make(chan error, 1)
	go func() { ended <- os.WriteFile(dir+"/b", []byte("2"), 0o600) }()
	<-f.Lost()
	f.Fail()
	if err := <-ended; err == nil {
		t.Error("a write without power ended well")
	}
	if content, there := f.Durable().Read("a"); !there || string(content) != "1" {
		t.Errorf("a is %q, %t", content, there)
	}
	if _, there := f.Durable().Read("b"); there {
		t.Error("b is there")
	}
}

func TestAWriteMayBeTorn(t *testing.T) {
	f := powerfs.New(nil)
	var mu sync.Mutex // the kernel determines the order, which the race detector does not see
	var torn []string
	f.Watch(func(s powerfs.Step) {
		mu.Lock()
		defer mu.Unlock()
		for _, image := range s.Torn {
			content, _ := image.Read("a")
			torn = append(torn, string(content))
		}
	})
	dir := mount(t, f)
	write(t, dir+"/a", "1234", true, 0)
	write(t, dir+"/a", "5678", false, os.O_APPEND)
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"12", "\x00\x00\x00\x00", "123456", "1234\x00\x00\x00\x00"}, torn); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, f.Unsynced()); diff != "" {
		t.Errorf("unsynced: -want +got\n%s", diff)
	}
}
