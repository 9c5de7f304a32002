package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/serverdir"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `stored` is the data directory of a server, with its first operator.
type stored struct {
	dir, operator string
	socket        string // "-": none
}

func initStored(t *testing.T) stored {
	t.Helper()
	return initStoredIn(t, filepath.Join(t.TempDir(), "server"))
}

// initStoredIn does the same as initStored, for a data directory of the caller's choice.
func initStoredIn(t *testing.T, dir string) stored {
	t.Helper()
	s := stored{dir: dir, operator: filepath.Join(t.TempDir(), "operator"), socket: "-"}
	err := InitServer(InitOptions{
		Dir: s.dir, Host: "127.0.0.1", Listen: "127.0.0.1:0", Bus: "127.0.0.1:0", Operator: "ada", OperatorDir: s.operator,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The method `serve` runs the server while the function `work` runs. The method returns the
// server's error and its log.
func (s stored) serve(t *testing.T, work func(ctx context.Context, c api.Values) error) (logged string, err error) {
	t.Helper()
	var out bytes.Buffer
	server, err := NewServer(ServerOptions{Dir: s.dir, Socket: s.socket, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		return out.String(), err
	}
	client, err := operator.Connect(operator.ConnectOptions{Server: "https://" + server.Addr(), OperatorDir: s.operator})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx); stop() }()
	worked := make(chan error, 1)
	go func() { worked <- work(ctx, client) }()
	unfinished := <-worked
	// if the server is unavailable, it ends by itself and reports the reason
	if tutti.CodeOf(unfinished) != tutti.CodeUnavailable {
		stop()
	}
	if err = <-ended; err == nil && unfinished != nil {
		t.Errorf("the work: %v", unfinished)
	}
	return out.String(), err
}

// The function `writes` returns a function that sets the given number of values. The last value
// is larger than one message.
func writes(prefix string, count int) func(ctx context.Context, c api.Values) error {
	return func(ctx context.Context, c api.Values) error {
		for i := range count {
			size := 100
			if i == count-1 {
				size = 128<<10 - 2
			}
			if err := c.SetValue(ctx, fmt.Sprint(prefix, i), fmt.Appendf(nil, "%q", strings.Repeat("x", size))); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s stored) mustServe(t *testing.T, work func(ctx context.Context, c api.Values) error) (logged string) {
	t.Helper()
	logged, err := s.serve(t, work)
	if err != nil {
		t.Fatalf("the server: %v\n%s", err, logged)
	}
	return logged
}

// The method `block` returns the path of the file with the log's records.
func (s stored) block(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "jetstream/jetstream/*/streams/TUTTI_LOG/msgs/*.blk"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of the log: %v, %v", files, err)
	}
	return files[0]
}

// The method `killed` changes the files as if the server had been killed: it removes the file
// that the bus writes only at a clean end.
func (s stored) killed(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(filepath.Dir(s.block(t)), "index.db")); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, change(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The method `forget` deletes the operator's record of the server's position. With this record,
// the operator's client would refuse the server.
func (s stored) forget(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.operator, operator.SeenFile)); err != nil {
		t.Fatal(err)
	}
}

// The function `files` returns the content of all files below `dir` for which the function
// `fits` returns true.
func files(t *testing.T, dir string, fits func(path string) bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !fits(path) {
			return err
		}
		raw, err := os.ReadFile(path)
		found[path] = string(raw)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

// The method `keep` copies the log, the head and the epoch. The returned function restores the
// copies that its arguments name.
func (s stored) keep(t *testing.T) (putBack func(what ...string)) {
	t.Helper()
	old := t.TempDir()
	if err := os.CopyFS(filepath.Join(old, "jetstream"), os.DirFS(filepath.Join(s.dir, "jetstream"))); err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(s.dir, serverdir.HeadFile))
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := os.ReadFile(filepath.Join(s.dir, serverdir.EpochFile))
	if err != nil {
		t.Fatal(err)
	}
	return func(what ...string) {
		t.Helper()
		for _, w := range what {
			if kept := map[string][]byte{serverdir.HeadFile: head, serverdir.EpochFile: epoch}[w]; kept != nil {
				edit(t, filepath.Join(s.dir, w), func([]byte) []byte { return kept })
				continue
			}
			if err := os.RemoveAll(filepath.Join(s.dir, w)); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(s.dir, w), os.DirFS(filepath.Join(old, w))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestALogThatLostWhatWasAcknowledgedIsNotServed(t *testing.T) {
	everything := func(path string) bool { return filepath.Base(path) != "lock" }
	// in these cases every file may change, because the bus writes its files before the server
	// reads the log
	noFiles := func(string) bool { return false }
	logFiles := func(path string) bool {
		return strings.Contains(path, "TUTTI_LOG") && filepath.Ext(path) == ".blk" || filepath.Base(path) == serverdir.HeadFile
	}
	cut := func(t *testing.T, s stored) {
		edit(t, s.block(t), func(raw []byte) []byte { return raw[:len(raw)-300] })
	}
	flip := func(t *testing.T, s stored) {
		edit(t, s.block(t), func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw })
	}
	for _, c := range []struct {
		reason string
		damage func(t *testing.T, s stored)
		same   func(path string) bool // the server must not change these files
		says   []string
	}{
		{"its last file is cut off", cut, everything, []string{"ends at event 6", "event 7 was acknowledged", "tutti server restore"}},
		{"its last file is cut off, after a kill", func(t *testing.T, s stored) { s.killed(t); cut(t, s) }, everything,
			[]string{"ends at event 6", "event 7 was acknowledged"}},
		{"a bit in its middle", flip, everything, []string{"ends at event", "but event 7 was acknowledged", "1.blk at byte"}},
		{"a bit in its middle, after a kill: the bus would cut it off there", func(t *testing.T, s stored) { s.killed(t); flip(t, s) }, everything,
			[]string{"but event 7 was acknowledged", "1.blk at byte"}},
		{"its beginning is overwritten: the bus would make it empty", func(t *testing.T, s stored) {
			edit(t, s.block(t), func(raw []byte) []byte { return append(make([]byte, 50), raw[50:]...) })
		}, everything, []string{"ends at event 0"}},
		{"it is gone", func(t *testing.T, s stored) {
			if err := os.RemoveAll(filepath.Join(s.dir, "jetstream")); err != nil {
				t.Fatal(err)
			}
		}, everything, []string{"ends at event 0", "event 7 was acknowledged"}},
		{"its stream is gone", func(t *testing.T, s stored) {
			if err := os.RemoveAll(filepath.Dir(filepath.Dir(s.block(t)))); err != nil {
				t.Fatal(err)
			}
		}, everything, []string{"ends at event 0", "event 7 was acknowledged"}},
		{"an old copy was put back", func(t *testing.T, s stored) {
			putBack := s.keep(t)
			s.mustServe(t, writes("shared/more", 2))
			putBack("jetstream")
		}, everything, []string{"ends at event 7", "event 9 was acknowledged"}},
		{"another log of the same length was put back", func(t *testing.T, s stored) {
			first := s.keep(t)
			s.mustServe(t, writes("shared/one", 2))
			other := s.keep(t)
			first("jetstream", serverdir.HeadFile)
			s.forget(t)
			s.mustServe(t, writes("shared/two", 2))
			other("jetstream")
		}, logFiles, []string{"the log is another one", "event 9"}},
		{"a bit of content", func(t *testing.T, s stored) {
			found, err := filepath.Glob(filepath.Join(s.dir, "jetstream/jetstream/*/streams/TUTTI_BLOBS/msgs/1.blk"))
			if err != nil || len(found) != 1 {
				t.Fatalf("%v, %v", found, err)
			}
			edit(t, found[0], func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw })
		}, everything, []string{"acknowledged content is damaged", "1.blk at byte", "tutti server restore"}},
		{"log and head are gone together", func(t *testing.T, s stored) {
			if err := errors.Join(os.RemoveAll(filepath.Join(s.dir, "jetstream")), os.Remove(filepath.Join(s.dir, serverdir.HeadFile))); err != nil {
				t.Fatal(err)
			}
		}, noFiles, []string{"the log has 0 events", "was served here", "tutti server new-epoch"}},
		{"log and head were put back together", func(t *testing.T, s stored) {
			putBack := s.keep(t)
			if err := serverdir.NewEpoch(s.dir, 0); err != nil {
				t.Fatal(err)
			}
			s.mustServe(t, writes("shared/more", 1))
			putBack("jetstream", serverdir.HeadFile)
		}, logFiles, []string{"of epoch 1 (", "was served here"}},
		{"the content of a large event is gone", func(t *testing.T, s stored) {
			dirs, err := filepath.Glob(filepath.Join(s.dir, "jetstream/jetstream/*/streams/TUTTI_BLOBS"))
			if err != nil || len(dirs) != 1 {
				t.Fatalf("%v, %v", dirs, err)
			}
			if err := os.RemoveAll(dirs[0]); err != nil {
				t.Fatal(err)
			}
		}, logFiles, []string{"the content of event 7 is gone"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s := initStored(t)
			s.mustServe(t, writes("shared/first", 5))
			c.damage(t, s)
			before := files(t, s.dir, c.same)
			logged, err := s.serve(t, writes("shared/never", 1))
			if tutti.CodeOf(err) != tutti.CodeDamaged {
				t.Fatalf("the server ended with %v and code %q, want one with code damaged\n%s", err, tutti.CodeOf(err), logged)
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if diff := cmp.Diff(before, files(t, s.dir, c.same)); diff != "" {
				t.Errorf("it changed files: -before +after\n%.2000s", diff)
			}
		})
	}
}

func TestALogThatHasWhatWasAcknowledgedIsServed(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(t *testing.T, s stored)
		says   string
	}{
		{"nothing happened", func(*testing.T, stored) {}, ""},
		{"it was killed", func(t *testing.T, s stored) { s.killed(t) }, ""},
		{"the head is older: it is not fsynced", func(t *testing.T, s stored) {
			putBack := s.keep(t)
			s.mustServe(t, writes("shared/more", 2))
			putBack(serverdir.HeadFile)
		}, ""},
		{"half a record was being written when the power went", func(t *testing.T, s stored) {
			s.killed(t)
			edit(t, s.block(t), func(raw []byte) []byte { return append(raw, raw[:100]...) })
		}, ""},
		{"no head", func(t *testing.T, s stored) {
			if err := os.Remove(filepath.Join(s.dir, serverdir.HeadFile)); err != nil {
				t.Fatal(err)
			}
		}, "the log has no file head"},
		{"a damaged head", func(t *testing.T, s stored) {
			edit(t, filepath.Join(s.dir, serverdir.HeadFile), func(raw []byte) []byte { raw[5] ^= 1; return raw })
		}, "the file head is damaged"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s := initStored(t)
			s.mustServe(t, writes("shared/first", 5))
			c.change(t, s)
			logged := s.mustServe(t, writes("shared/again", 1))
			if c.says == "" && strings.Contains(logged, "file head") || !strings.Contains(logged, c.says) {
				t.Errorf("%q is not in what was logged:\n%s", c.says, logged)
			}
			isHead := func(path string) bool { return filepath.Base(path) == serverdir.HeadFile }
			if head := files(t, s.dir, isHead)[filepath.Join(s.dir, serverdir.HeadFile)]; !strings.Contains(head, "sha256:") || strings.HasPrefix(head, strings.Repeat("0", 20)) {
				t.Errorf("the head is %q afterwards", head)
			}
		})
	}
}
