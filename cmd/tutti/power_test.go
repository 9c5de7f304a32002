//go:build killpoints

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/powerfs"
)

// The type `promise` is something that the server has acknowledged. The field `step` is the number
// of steps of the server's file system before the acknowledgement.
type promise struct {
	step int
	what string
	kept func(ctx context.Context, s *httpapi.Client) error
}

// The type `recorder` records the promises of a server, and the content of its disk after each step.
type recorder struct {
	fs       *powerfs.FS
	promises []promise
	cuts     []cut
}

// The type `cut` is the state of the disk after a loss of power.
type cut struct {
	step  int
	name  string
	image powerfs.Image
}

func (r *recorder) watch() {
	last := r.fs.Durable()
	r.cuts = append(r.cuts, cut{0, "before the first step", last})
	r.fs.Watch(func(s powerfs.Step) {
		name := fmt.Sprintf("%d %s %s", s.N, s.Op, filepath.Base(s.Path))
		if !last.Equal(s.Durable) {
			last = s.Durable
			r.cuts = append(r.cuts, cut{s.N, name, last})
		}
		for i, torn := range s.Torn {
			r.cuts = append(r.cuts, cut{s.N, name + []string{" half written", " all but data written"}[i], torn})
		}
	})
}

// The method `promised` records that the server has just acknowledged something.
func (r *recorder) promised(what string, kept func(ctx context.Context, s *httpapi.Client) error) {
	r.promises = append(r.promises, promise{r.fs.Steps(), what, kept})
}

// TestAcknowledgedWritesSurviveLossOfPower runs a server on a file system that records the content
// of the disk after each step. For each step the test starts a server on that content. The server
// must start without manual work, and must have everything that was acknowledged before this step.
func TestAcknowledgedWritesSurviveLossOfPower(t *testing.T) {
	tpl := newServer(t, killSite)
	dir := filepath.Join(tpl.dir, serverProcess)
	image, err := powerfs.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{fs: powerfs.New(image)}
	r.watch()
	unmount, err := r.fs.Mount(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	r.work(t, tpl)
	r.fs.Watch(nil)
	t.Logf("%d steps, %d ends, %d promises", r.fs.Steps(), len(r.cuts), len(r.promises))
	failures := make([]error, len(r.cuts))
	var working sync.WaitGroup
	next := make(chan int)
	for range 4 {
		working.Go(func() {
			for i := range next {
				failures[i] = r.restart(t.Context(), r.cuts[i])
			}
		})
	}
	for i := range r.cuts {
		next <- i
	}
	close(next)
	working.Wait()
	for i, c := range r.cuts {
		t.Run(c.name, func(t *testing.T) {
			if failures[i] != nil {
				t.Error(failures[i])
			}
		})
	}
}

// The method `work` uses the server like a fleet, and records each acknowledgement.
func (r *recorder) work(t *testing.T, tpl template) {
	t.Helper()
	ctx := t.Context()
	puppetIn(t, tpl.dir)
	f := &killFleet{dir: tpl.dir}
	defer f.clear(t)
	f.begin(t, nil, serverProcess)
	f.ready(t)
	r.setValues(t, f, "shared/a", "shared/b")
	created, err := f.client.CreateToken(ctx, api.CreateToken{Name: "spare-01"})
	if err != nil {
		t.Fatal(err)
	}
	r.promised("a token", func(ctx context.Context, s *httpapi.Client) error {
		tokens, err := s.ListTokens(ctx)
		if err == nil && !slices.ContainsFunc(tokens, func(v api.TokenView) bool { return v.Token == created.Token }) {
			err = fmt.Errorf("token %s is gone: %v", created.Token, tokens)
		}
		return err
	})
	for _, name := range []string{dbProcess, webProcess} {
		tpl.join(t, name)
		r.promised("node "+name, func(ctx context.Context, s *httpapi.Client) error {
			nodes, err := s.ListNodes(ctx)
			if err == nil && !slices.ContainsFunc(nodes, func(v api.NodeView) bool { return v.Node == tutti.NodeName(name+"-01") }) {
				err = fmt.Errorf("node %s is gone", name)
			}
			return err
		})
	}
	tpl.tutti(t, "", "code", "push")
	r.promised("code and fleet file", func(ctx context.Context, s *httpapi.Client) error {
		_, err := s.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeNoop})
		return err
	})
	f.begin(t, nil, dbProcess, webProcess)
	r.job(t, f)
	r.setValues(t, f, "shared/c")
	f.end(t)
	// The next part covers the server's stop, its start, and its start after a kill -9.
	next := &killFleet{dir: tpl.dir}
	defer next.clear(t)
	next.begin(t, map[string]string{serverProcess: killpoint.At + "=server.answered value.set#1"}, serverProcess)
	next.ready(t)
	r.setValues(t, next, "shared/d", "shared/e")
	if !next.killed.Load() {
		t.Error("the second server was not killed")
	}
}

func (r *recorder) setValues(t *testing.T, f *killFleet, keys ...string) {
	t.Helper()
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(t.Context(), killDeadline)
		err := again(ctx, func() error { return f.client.SetValue(ctx, key, json.RawMessage(`"x"`)) })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		r.promised(key, func(ctx context.Context, s *httpapi.Client) error {
			values, err := s.ListValues(ctx, key)
			if err == nil && len(values) == 0 {
				err = fmt.Errorf("value %s is gone", key)
			}
			return err
		})
		// All data that an acknowledgement needs must be on disk before the acknowledgement. The trace
		// shows this.
		for _, path := range r.fs.Unsynced() {
			if strings.HasSuffix(path, ".blk") {
				t.Errorf("%s was acknowledged while %s was not fsynced", key, path)
			}
		}
	}
}

// The method `job` runs one job. For this test, everything that the job's watcher has seen counts as acknowledged.
func (r *recorder) job(t *testing.T, f *killFleet) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), killDeadline)
	defer cancel()
	job, err := f.client.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	err = f.client.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		if w.Event == nil {
			return nil
		}
		r.promisedEvent(job, *w.Event)
		if b, ok := w.Event.Body.(*tutti.RunFinished); ok && !b.Result.Outcome.Good() {
			return fmt.Errorf("run %s of %s ended as %s: %s", b.Result.Run, job, b.Result.Outcome, b.Result.Message)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *recorder) promisedEvent(job tutti.JobID, e tutti.Event) {
	r.promised(fmt.Sprintf("event %d, %s", e.Seq, e.Body.Kind()), func(ctx context.Context, s *httpapi.Client) error {
		var got []tutti.Event
		err := s.WatchJob(ctx, api.WatchJob{Job: job}, func(w api.Watched) error {
			if w.Event != nil && w.Event.Seq == e.Seq {
				got = append(got, *w.Event)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if diff := cmp.Diff([]tutti.Event{e}, got); diff != "" {
			return fmt.Errorf("event %d of the job: -want +got\n%s", e.Seq, diff)
		}
		if b, ok := e.Body.(*tutti.RunFinished); ok {
			_, err = s.RunRecord(ctx, b.Result.Run)
		}
		return err
	})
}

// The method `restart` starts a server on the remaining content and checks the promises.
func (r *recorder) restart(ctx context.Context, c cut) (err error) {
	ctx, cancel := context.WithTimeout(ctx, killDeadline)
	defer cancel()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "socket")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		return err
	}
	unmount, err := powerfs.New(c.image).Mount(data)
	if err != nil {
		return err
	}
	defer func() {
		if unmountErr := unmount(); err == nil {
			err = unmountErr
		}
	}()
	var said strings.Builder
	server := exec.CommandContext(ctx, "tutti", "server", "--dir", data, "--socket", socket, "--listen", "127.0.0.1:0", "--bus", "127.0.0.1:0")
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	startCtx, stopWaiting := context.WithCancelCause(ctx)
	go func() { err := server.Wait(); stopWaiting(fmt.Errorf("the server ended: %w", err)); close(ended) }()
	defer func() {
		_ = server.Process.Kill()
		<-ended
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, said.String())
		}
	}()
	client, err := operator.Connect(operator.ConnectOptions{OperatorDir: filepath.Join(dir, "none"), Socket: socket})
	if err != nil {
		return err
	}
	if err := again(startCtx, func() error { _, err := client.ListNodes(startCtx); return err }); err != nil {
		return fmt.Errorf("the server does not start: %w", err)
	}
	for _, p := range r.promises {
		if p.step > c.step {
			continue
		}
		if err := p.kept(ctx, client); err != nil {
			return fmt.Errorf("%s was acknowledged after step %d: %w", p.what, p.step, err)
		}
	}
	return nil
}
