// Package servertest runs a real server on a log, blobs, a bus and identities in memory. The nodes
// of this server do what the test wants. The tests of package server, and the tests of all users of
// a server, are built on this package.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/sweep"
)

// Fleet is a running server with its log, blobs, bus and identities.
type Fleet struct {
	*server.Server
	Log      *memory.Log
	Blobs    *memory.Blobs
	Bus      *Bus
	Identity *Identity

	t      testing.TB
	cancel context.CancelFunc
	ended  chan struct{}
	err    error

	answering sync.WaitGroup // nodes that answer questions
}

var runs atomic.Int64

// NewRunID returns a run id that no other fleet of this process has.
func NewRunID() tutti.RunID {
	return tutti.RunID(fmt.Sprintf("00000000-0000-4000-8000-%012d", runs.Add(1)))
}

// Start starts a server on an empty log. The server ends with the test.
func Start(t testing.TB, change ...func(*server.Options)) *Fleet {
	t.Helper()
	return Resume(t, memory.NewLog(), memory.NewBlobs(), change...)
}

// Resume starts a server on the log and blobs of an earlier server.
func Resume(t testing.TB, log *memory.Log, blobs *memory.Blobs, change ...func(*server.Options)) *Fleet {
	t.Helper()
	f := &Fleet{Log: log, Blobs: blobs, Bus: &Bus{}, Identity: &Identity{}, t: t, ended: make(chan struct{})}
	opts := server.Options{
		Log: log, Blobs: sweep.New(blobs, time.Now), Bus: f.Bus, Identity: f.Identity, NewRunID: NewRunID,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&opts)
	}
	f.Server = server.New(opts)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() {
		defer close(f.ended)
		f.err = f.Run(ctx)
	}()
	t.Cleanup(func() { _ = f.Stop() })
	select {
	case <-f.Ready():
	case <-f.ended:
		t.Fatalf("the server did not start: %v", f.err)
	}
	return f
}

// Stop ends the server and returns the reason of its end. Stop returns nil if the server ended
// because of Stop.
func (f *Fleet) Stop() error {
	f.cancel()
	defer f.answering.Wait()
	return f.Wait()
}

// Wait waits for the end of the server.
func (f *Fleet) Wait() error {
	<-f.ended
	if errors.Is(f.err, context.Canceled) {
		return nil
	}
	return f.err
}

// Restart ends the server and starts another server on the same log.
func (f *Fleet) Restart(change ...func(*server.Options)) *Fleet {
	f.t.Helper()
	_ = f.Stop()
	return Resume(f.t, f.Log, f.Blobs, change...)
}

// Operator returns a context of the operator ada.
func Operator() context.Context { return tutti.WithActor(context.Background(), "operator:ada") }

// CodePath is the path of the only file in the code that Push pushes. CodeContent is the content of
// this file.
const (
	CodeContent = "notify { 'hello': }\n"
	CodePath    = "manifests/site.pp"
)

// Push sends code and a fleet file to the server.
func (f *Fleet) Push(fleetFile string) tutti.CodePushed {
	f.t.Helper()
	pushed := f.PushSite(CodeContent)
	if _, err := f.SetFleet(Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(fleetFile)}); err != nil {
		f.t.Fatal(err)
	}
	return pushed
}

// PushSite sends code with one manifest to the server.
func (f *Fleet) PushSite(manifest string) tutti.CodePushed {
	f.t.Helper()
	return f.PushSiteTo("production", manifest)
}

// PushSiteTo sends code with one manifest for an environment to the server.
func (f *Fleet) PushSiteTo(environment, manifest string) tutti.CodePushed {
	f.t.Helper()
	return f.pushFiles(environment, map[string]string{CodePath: manifest}, nil)
}

// PushCounted sends code with one manifest to the server, signed with a counter.
func (f *Fleet) PushCounted(manifest string, counter uint64) tutti.CodePushed {
	f.t.Helper()
	return f.pushSigned("production", map[string]string{CodePath: manifest}, nil, func(m tutti.CodeManifest) tutti.SignedCode { return SignAs(m, counter) })
}

// PushHeld sends code with one manifest to the server. The reaction says how nodes react to this
// code.
func (f *Fleet) PushHeld(manifest string, reaction tutti.CodeReaction) tutti.CodePushed {
	f.t.Helper()
	return f.pushFiles("production", map[string]string{CodePath: manifest}, &reaction)
}

// PushFiles sends code with these files to the server.
func (f *Fleet) PushFiles(files map[string]string) tutti.CodePushed {
	f.t.Helper()
	return f.pushFiles("production", files, nil)
}

func (f *Fleet) pushFiles(environment string, files map[string]string, reaction *tutti.CodeReaction) tutti.CodePushed {
	f.t.Helper()
	return f.pushSigned(environment, files, reaction, Sign)
}

func (f *Fleet) pushSigned(environment string, files map[string]string, reaction *tutti.CodeReaction, sign func(tutti.CodeManifest) tutti.SignedCode) tutti.CodePushed {
	f.t.Helper()
	manifest := tutti.CodeManifest{Version: 1, Environment: environment, Files: map[string]tutti.CodeFile{}}
	for name, content := range files {
		digest, err := f.PutBlob(Operator(), []byte(content))
		if err != nil {
			f.t.Fatal(err)
		}
		manifest.Files[name] = tutti.CodeFile{Digest: digest, Size: int64(len(content))}
	}
	pushed, err := f.PushCode(Operator(), tutti.CodePush{SignedCode: sign(manifest), Reaction: reaction})
	if err != nil {
		f.t.Fatal(err)
	}
	return pushed
}

// Start starts a plan.
func (f *Fleet) Start(plan tutti.PlanName, mode tutti.Mode) tutti.JobID {
	f.t.Helper()
	job, err := f.StartJob(Operator(), api.StartJob{Plan: plan, Mode: mode})
	if err != nil {
		f.t.Fatal(err)
	}
	return job
}

// Job returns the view of a job.
func (f *Fleet) Job(id tutti.JobID) api.JobView {
	f.t.Helper()
	jobs, err := f.ListJobs(Operator())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Job == id {
			return j
		}
	}
	f.t.Fatalf("no job %q in %v", id, jobs)
	return api.JobView{}
}

// Everything returns the log.
func (f *Fleet) Everything() []tutti.Event {
	f.t.Helper()
	return read(f.t, f.Log)
}

// Events returns the events of the log without the epoch.begun events, which every log has.
func (f *Fleet) Events() []tutti.Event {
	f.t.Helper()
	return Events(f.t, f.Log)
}

// Events returns the events of a log without the epoch.begun events, which every log has.
func Events(t testing.TB, log tutti.Log) []tutti.Event {
	t.Helper()
	return slices.DeleteFunc(read(t, log), func(e tutti.Event) bool { return e.Body.Kind() == "epoch.begun" })
}

func read(t testing.TB, log tutti.Log) []tutti.Event {
	t.Helper()
	var out []tutti.Event
	for e, err := range log.Read(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// Kinds returns the kinds of the events.
func Kinds(events []tutti.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Body.Kind())
	}
	return out
}

// Since returns the kinds of the events after the first n events.
func (f *Fleet) Since(n int) []string {
	f.t.Helper()
	return Kinds(f.Events()[n:])
}

// Denials returns the refusals in the log, as `who: what`.
func (f *Fleet) Denials() []string {
	f.t.Helper()
	var out []string
	for _, e := range f.Events() {
		if d, ok := e.Body.(*tutti.Denied); ok {
			out = append(out, d.Who+": "+d.What)
		}
	}
	return out
}
