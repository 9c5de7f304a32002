//go:build killpoints

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
)

const largeReport = 20 << 20

// The type `wire` is the connection between the node db and the bus. It counts the bytes that the node sends. After a
// certain number of bytes it calls its function `happens` once.
type wire struct {
	listener net.Listener
	target   string
	up       atomic.Int64
	after    int64
	once     sync.Once
	happens  func(node net.Conn)
}

func (w *wire) serve(ctx context.Context, group *errgroup.Group) error {
	stop := context.AfterFunc(ctx, func() { _ = w.listener.Close() })
	defer stop()
	for {
		node, err := w.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil { // the bus is down, and starts again
			_ = node.Close()
			continue
		}
		closeBoth := sync.OnceFunc(func() { _, _ = node.Close(), server.Close() })
		context.AfterFunc(ctx, closeBoth)
		group.Go(func() error { defer closeBoth(); _, _ = io.Copy(node, server); return nil })
		group.Go(func() error { defer closeBoth(); w.pass(server, node); return nil })
	}
}

func (w *wire) pass(server, node net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := node.Read(buf)
		if err != nil {
			return
		}
		if w.up.Add(int64(n)) > w.after && w.happens != nil {
			w.once.Do(func() { w.happens(node) })
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestLargeResultsArrive sends a report of 20 MiB and 3,000 exports from a real agent to a real
// server. In some cases the connection breaks in the middle.
func TestLargeResultsArrive(t *testing.T) {
	const exports = 3000
	for _, c := range []struct {
		reason  string
		report  int
		breaks  string
		atMost  int64 // limit of the bytes that the node sends
		without bool  // the server gets the result without the report
	}{
		{"nothing breaks", largeReport, "", largeReport * 11 / 10, false},
		{"the connection is cut in the middle", largeReport, "connection", largeReport * 12 / 10, false},
		{"the server is killed in the middle: it has forgotten what came", largeReport, "server", largeReport * 17 / 10, false},
		{"the report is larger than any content may be", 65 << 20, "", largeReport, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			f := newTemplate(t, fmt.Sprintf("db-01 exports Database %d\ndb-01 report %d\nweb-01 collect Database\n", exports, c.report)).copy(t)
			defer f.clear(t)
			w := newWire(t, f, c.breaks)
			env := map[string]string{}
			if c.breaks == "server" { // the server dies when it has the middle chunk of the report
				env[serverProcess] = killpoint.At + "=natsbus.chunk#" + fmt.Sprint(largeReport/2/(128<<10))
			}
			f.begin(t, env, serverProcess)
			f.group.Go(func() error { return w.serve(f.ctx, f.group) })
			f.begin(t, env, dbProcess, webProcess)
			ctx, cancel := context.WithTimeout(t.Context(), killDeadline)
			defer cancel()
			got, err := f.outcome(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != tutti.VerdictSucceeded || len(got.Runs) != 2 || len(got.Runs[0].Exports) != exports || got.Runs[1].Reads["collect Database"] == "" {
				t.Errorf("job %s, %d runs, %d exports in the record", got.Verdict, len(got.Runs), len(got.Runs[0].Exports))
			}
			if passed := w.up.Load(); passed > c.atMost {
				t.Errorf("%d bytes went up for a report of %d, at most %d: it was not continued where it was", passed, c.report, c.atMost)
			}
			if (c.breaks == "server") != f.killed.Load() {
				t.Error("the server was not killed: the test proves nothing")
			}
			f.checkReport(ctx, t, c.without)
			f.checkCollected(t, exports)
		})
	}
}

func newWire(t *testing.T, f *killFleet, breaks string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, after: largeReport / 2}
	if breaks == "connection" {
		w.happens = func(node net.Conn) { _ = node.Close() }
	}
	path := filepath.Join(f.dir, "db/identity/membership.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if w.target, err = busOf(raw); err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(w.target), []byte(l.Addr().String()), 1)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func busOf(membership []byte) (string, error) {
	var in struct {
		Bus string `json:"bus"`
	}
	err := json.Unmarshal(membership, &in)
	return in.Bus, err
}

// checkReport compares the report on the server with the file of the run.
func (f *killFleet) checkReport(ctx context.Context, t *testing.T, without bool) {
	t.Helper()
	events, err := f.runJob(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		b, ok := e.Body.(*tutti.RunFinished)
		if !ok {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(f.dir, dbProcess, "runs", string(b.Result.Run), "report.json"))
		if err != nil {
			continue // a run of the other node
		}
		if without {
			if b.Result.Report != "" || b.Result.Record == "" {
				t.Errorf("result %+v, want one without the report, with the record", b.Result)
			}
			return
		}
		if missing, err := f.client.MissingBlobs(ctx, []tutti.Digest{tutti.DigestOf(raw)}); b.Result.Report != tutti.DigestOf(raw) || len(missing) > 0 || err != nil {
			t.Errorf("the result names the report %q, the file is %s, missing %v, %v", b.Result.Report, tutti.DigestOf(raw), missing, err)
		}
		return
	}
	t.Error("the run has no result")
}

// checkCollected checks the exports that the other node got.
func (f *killFleet) checkCollected(t *testing.T, want int) {
	t.Helper()
	books, _ := filepath.Glob(filepath.Join(f.dir, webProcess, "runs", "*", "answers.jsonl"))
	for _, path := range books {
		raw, err := os.ReadFile(path)
		if n := bytes.Count(raw, []byte(`"title":"Database `)); err != nil || n != want {
			t.Errorf("the other node was given %d exports, want %d: %v", n, want, err)
		}
	}
	if len(books) != 1 {
		t.Errorf("%d runs of the other node, want 1", len(books))
	}
}
