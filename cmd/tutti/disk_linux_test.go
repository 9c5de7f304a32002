package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/bustest"
)

// The type `small` is a server on its own small disk, with its operator.
type small struct {
	t    *testing.T
	disk string
	dir  string
	env  []string
	url  string
	run  *exec.Cmd
	said *bytes.Buffer
}

const smallDisk = 96 << 20

// newSmall mounts the disk and creates a server on it.
func newSmall(t *testing.T) *small {
	t.Helper()
	work := t.TempDir()
	s := &small{t: t, disk: filepath.Join(work, "disk"), env: append(os.Environ(), "TUTTI_OPERATOR="+filepath.Join(work, "operator"))}
	s.dir = filepath.Join(s.disk, "srv")
	if err := os.Mkdir(s.disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", s.disk, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(s.disk, 0); err != nil {
			t.Error(err)
		}
	})
	listen := bustest.Address(t)
	s.url = "https://" + listen
	s.must("server", "init", "--dir", s.dir, "--host", "127.0.0.1", "--listen", listen, "--bus", bustest.Address(t))
	t.Cleanup(s.stop)
	return s
}

func (s *small) socket() string { return filepath.Join(s.disk, "sock") }

// The method `start` starts the server. It does not wait until the server serves.
func (s *small) start() {
	s.t.Helper()
	s.said = &bytes.Buffer{}
	s.run = exec.Command("tutti", "server", "--dir", s.dir, "--socket", s.socket())
	s.run.Env, s.run.Stderr = s.env, s.said
	if err := s.run.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *small) stop() {
	if s.run == nil {
		return
	}
	_ = s.run.Process.Kill()
	_ = s.run.Wait()
	s.run = nil
	if s.t.Failed() {
		s.t.Logf("the server said:\n%s", s.said)
	}
}

// The method `tutti` runs a command and returns its output and its exit code.
func (s *small) tutti(args ...string) (string, int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), untilDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tutti", args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.t.Error(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (s *small) must(args ...string) string {
	s.t.Helper()
	out, code := s.tutti(args...)
	if code != 0 {
		s.t.Fatalf("tutti %v: %d: %s", args, code, out)
	}
	return out
}

// The method `refused` executes a command. The command must end with exit code 4, and its output must
// have the given words.
func (s *small) refused(says string, args ...string) {
	s.t.Helper()
	if out, code := s.tutti(args...); code != 4 || !strings.Contains(out, says) {
		s.t.Errorf("tutti %v: %d %q, want 4 and %q", args, code, out, says)
	}
}

// The method `serves` waits until the server answers commands.
func (s *small) serves() {
	s.t.Helper()
	s.eventually("it serves", func() bool { _, code := s.tutti("node", "list"); return code == 0 })
}

func (s *small) eventually(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(untilDeadline); !holds(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %s: %s", untilDeadline, what)
		}
	}
}

// The method `fill` writes to the disk until only the given number of bytes is free.
func (s *small) fill(leave int64) {
	s.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.disk, &st); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(s.disk, "full"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	size := int64(st.Bavail)*st.Bsize - leave
	if leave == 0 {
		size = smallDisk
	}
	if _, err := io.CopyN(f, zeros{}, size); err != nil && !errors.Is(err, syscall.ENOSPC) {
		s.t.Fatal(err)
	}
}

func (s *small) free() {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.disk, "full")); err != nil {
		s.t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// The method `values` returns the keys that the server has.
func (s *small) values() map[string]bool {
	s.t.Helper()
	var list []struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal([]byte(s.must("data", "list", "--json")), &list); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, v := range list {
		out[v.Key] = true
	}
	return out
}

const fullWords = "the server's disk is full: "

// If little space is left, the server refuses new work with an explanation and answers all other
// requests.
func TestDiskNearlyFull(t *testing.T) {
	s := newSmall(t)
	s.start()
	s.serves()
	s.must("data", "set", "shared/kept", "1")
	s.fill(2 << 20)
	says := fullWords + "2.0 MiB free in " + s.dir + ", and 4.8 MiB are reserved to finish running work; after you free some space, work goes on by itself"
	s.eventually("the first refusal", func() bool { _, code := s.tutti("data", "set", "shared/first", "1"); return code == 4 })
	s.refused(says, "data", "set", "shared/x", "1")
	s.refused(says, "token", "create", "--name", "db-01")
	s.must("node", "list")
	s.must("data", "unset", "--yes", "shared/kept")
	s.free()
	s.eventually("new work is taken", func() bool { _, code := s.tutti("data", "set", "shared/x", "1"); return code == 0 })
}

// Other files fill the disk to the last byte while operators write. No acknowledged value may be
// missing. The process must say why it cannot work, even if it is started on the full disk. The
// process must work again by itself when space is free.
func TestDiskFull(t *testing.T) {
	s := newSmall(t)
	s.start()
	s.serves()
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("shared/%d/%d", w, i)
				if _, code := s.tutti("data", "set", key, `"`+strings.Repeat("x", 4000)+`"`); code == 0 {
					mu.Lock()
					acknowledged[key] = true
					mu.Unlock()
				}
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acknowledged) }
	for range 2 {
		had := count()
		s.eventually("writes are acknowledged", func() bool { return count() > had+10 })
		s.fill(0)
		s.eventually("it says so", func() bool {
			// the server must refuse new values even while it still works
			out, code := s.tutti("data", "set", "shared/x", "1")
			return code == 4 && strings.Contains(out, fullWords)
		})
		s.free()
		s.serves()
	}
	close(stop)
	writers.Wait()
	s.fill(0)
	s.useUp(acknowledged)
	s.closed()
	s.stop()
	s.start()
	s.closed()
	s.free()
	s.serves()
	s.must("data", "set", "shared/after", "1")
	has := s.values()
	for key := range acknowledged {
		if !has[key] {
			t.Errorf("%s was acknowledged and is gone", key)
		}
	}
	t.Logf("%d writes were acknowledged", len(acknowledged))
}

// useUp makes the requests that the server allows while only its reserve of disk space is left,
// until the last block of the log is full. useUp removes from `values` each key that it has unset
// or possibly unset.
func (s *small) useUp(values map[string]bool) {
	s.t.Helper()
	for key := range values {
		delete(values, key)
		out, code := s.tutti("data", "unset", "--yes", key)
		switch {
		case code == 4 && strings.Contains(out, fullWords):
			return
		case code != 0:
			s.t.Fatalf("unset %s: %d: %s", key, code, out)
		}
	}
	s.t.Fatal("a full disk takes everything")
}

// The method `closed` waits until the full disk stops all work. The server must report this by HTTPS and by
// its socket.
func (s *small) closed() {
	s.t.Helper()
	s.eventually("it says that the disk is full", func() bool {
		out, code := s.tutti("node", "list")
		return code == 4 && strings.Contains(out, fullWords+"0 KiB free")
	})
	s.refused(fullWords+"0 KiB free", "--operator", "/nowhere", "--socket", s.socket(), "node", "list")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
	}}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]int{"healthz": http.StatusOK, "readyz": http.StatusServiceUnavailable, "v1/jobs/list": http.StatusServiceUnavailable} {
		resp, err := (&http.Client{Transport: transport}).Get("http://tutti/" + path)
		if err != nil {
			s.t.Error(err)
			continue
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			s.t.Errorf("/%s: %s, want %d", path, resp.Status, want)
		}
	}
}
