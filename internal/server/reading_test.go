package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// largeFile pushes a file whose declared size is a quarter of the limit for all content in memory.
func largeFile(t *testing.T, f *servertest.Fleet) tutti.Digest {
	t.Helper()
	digest, err := f.PutBlob(servertest.Operator(), []byte("large"))
	if err != nil {
		t.Fatal(err)
	}
	signed := servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{
		servertest.CodePath: {Digest: digest, Size: 64 << 20},
	}})
	if _, err := f.PushCode(servertest.Operator(), tutti.CodePush{SignedCode: signed}); err != nil {
		t.Fatal(err)
	}
	return digest
}

// The type `calls` records the calls of nodes. The test's bus sends an answer only when the test calls the method
// `sent`.
type calls struct {
	mu      sync.Mutex
	turns   map[string]*tutti.Turn
	errs    map[string]error
	yielded []string
}

// The method `begin` lets a node ask for a file.
func (c *calls) begin(t *testing.T, n *servertest.Node, name string, in wire.BlobGet) {
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	ctx, turn := tutti.WithTurn(t.Context(), func() {
		select {
		case <-ended:
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.yielded = append(c.yielded, name)
		}
	})
	go func() {
		_, err := n.Fleet.Handle(ctx, n.Key, wire.OpBlobGet, raw)
		close(ended)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.turns[name], c.errs[name] = turn, err
	}()
	synctest.Wait()
}

// The method `sent` sends the answers of these calls.
func (c *calls) sent(names ...string) {
	for _, name := range names {
		c.mu.Lock()
		turn := c.turns[name]
		c.mu.Unlock()
		turn.End()
	}
	synctest.Wait()
}

func (c *calls) want(t *testing.T, answered ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := map[string]bool{}
	for name := range c.turns {
		got[name] = true
	}
	want := map[string]bool{}
	for _, name := range answered {
		want[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answered: -want +got\n%s", diff)
	}
}

// TestLargeFilesAreReadByTurns checks that the server limits the files in memory. A file counts until its answer has
// been sent. Each node has only one file in memory at a time. A waiting call leaves its place at the bus. If the call
// waits too long, the error says for what it waits.
func TestLargeFilesAreReadByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		var nodes []*servertest.Node
		for i := range 6 {
			nodes = append(nodes, f.Join(tutti.NodeName(fmt.Sprintf("n%d", i))))
		}
		f.Push("fleet: test\nenvironment: {name: production, path: ./code}\ngroups: {six: {nodes: [n0, n1, n2, n3, n4, n5]}}\nplans: {deploy: {steps: [{run: six}]}}\n")
		digest := largeFile(t, f)
		f.Start("deploy", tutti.ModeApply)
		c := &calls{turns: map[string]*tutti.Turn{}, errs: map[string]error{}}
		var gets []wire.BlobGet
		for _, n := range nodes {
			gets = append(gets, wire.BlobGet{Run: n.MustClaim().Run, Digest: digest})
		}
		for _, name := range []string{"0a", "0b", "0c", "1a", "2a", "3a", "4a", "5a", "4b"} {
			i := name[0] - '0'
			c.begin(t, nodes[i], name, gets[i])
		}
		c.want(t, "0a", "1a", "2a", "3a")
		if diff := cmp.Diff([]string{"0b", "0c", "4a", "5a", "4b"}, c.yielded); diff != "" {
			t.Errorf("they have no place at the bus: -want +got\n%s", diff)
		}
		c.sent("0a")
		c.want(t, "0a", "1a", "2a", "3a", "4a") // 0b does not begin yet, because node n0 has had a turn
		c.sent("1a", "2a")
		c.want(t, "0a", "1a", "2a", "3a", "4a", "5a", "0b")
		c.sent("3a")
		c.want(t, "0a", "1a", "2a", "3a", "4a", "5a", "0b") // the nodes of 0c and 4b already have one file in memory each
		time.Sleep(21 * time.Second)
		c.want(t, "0a", "1a", "2a", "3a", "4a", "5a", "0b", "0c", "4b")
		for _, name := range []string{"0c", "4b"} {
			wantCode(t, c.errs[name], tutti.CodeUnavailable, "waited 20s for its turn to read content: the server reads at most 256 MiB")
		}
		c.sent("0b", "4a", "5a")
		for i, n := range nodes {
			c.begin(t, n, fmt.Sprint(i, "z"), gets[i])
		}
		c.want(t, "0a", "1a", "2a", "3a", "4a", "5a", "0b", "0c", "4b", "0z", "1z", "2z", "3z") // all limits are free again
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// oneStep is a plan with one step on one node.
const oneStep = "fleet: test\nenvironment: {name: production, path: ./code}\ngroups: {db: {nodes: [db-01]}}\nplans: {deploy: {steps: [{run: db}]}}\n"

// The type `slow` is a blob store that returns some content only when the test says so.
type slow struct {
	*memory.Blobs
	of     tutti.Digest
	begun  chan struct{}
	finish chan struct{}
}

func (b *slow) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if digest == b.of {
		b.begun <- struct{}{}
		<-b.finish
	}
	return b.Blobs.Get(ctx, digest)
}

// TestResultsAreReadOneAfterTheOther checks a result that arrives many times at once. The server reads the record of
// this result only once, and has the record in memory only once.
func TestResultsAreReadOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blobs := &slow{Blobs: memory.NewBlobs(), begun: make(chan struct{}, 10), finish: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) { o.Blobs = blobs })
		db := f.Join("db-01")
		f.Push(oneStep)
		f.Start("deploy", tutti.ModeApply)
		run := db.MustClaim().Run
		record := []byte(`{"reads":[],"keys":[{"key":"a"}` + strings.Repeat(" ", 300<<10) + `]}`)
		if _, err := f.Handle(t.Context(), db.Key, wire.OpBlobPut, record); err != nil {
			t.Fatal(err)
		}
		blobs.of = tutti.DigestOf(record)
		result := servertest.Result(run, tutti.Changed)
		result.Record = blobs.of
		answers := make(chan error, 5)
		for range 5 {
			go func() { answers <- db.Call(wire.OpResult, result, nil) }()
		}
		synctest.Wait()
		if n := len(blobs.begun); n != 1 {
			t.Errorf("%d are read at once", n)
		}
		close(blobs.finish)
		for range 5 {
			wantCode(t, <-answers, "", "")
		}
		if n := len(blobs.begun); n != 1 {
			t.Errorf("it was read %d times", n)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// The type `sized` is a blob store that reports a larger size for some content.
type sized struct {
	*memory.Blobs
	of   tutti.Digest
	size int64
}

func (b *sized) Size(ctx context.Context, digest tutti.Digest) (int64, error) {
	if digest == b.of {
		return b.size, nil
	}
	return b.Blobs.Size(ctx, digest)
}

func (b *sized) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if digest == b.of {
		return nil, tutti.Errorf(tutti.CodeInternal, "it was read")
	}
	return b.Blobs.Get(ctx, digest)
}

// TestALargeRecordIsNotRead checks that the server refuses a large record with an error that ends the run.
func TestALargeRecordIsNotRead(t *testing.T) {
	blobs := &sized{Blobs: memory.NewBlobs(), size: 16<<20 + 1}
	f := servertest.Start(t, func(o *server.Options) { o.Blobs = blobs })
	db := f.Join("db-01")
	f.Push(oneStep)
	f.Start("deploy", tutti.ModeApply)
	run := db.MustClaim().Run
	record := []byte(`{"reads":[],"keys":[]}`)
	if _, err := f.Handle(t.Context(), db.Key, wire.OpBlobPut, record); err != nil {
		t.Fatal(err)
	}
	blobs.of = tutti.DigestOf(record)
	result := servertest.Result(run, tutti.Changed)
	result.Record = blobs.of
	wantCode(t, db.Call(wire.OpResult, result, nil), tutti.CodeRefused, "has 16777217 bytes; the server reads records of at most 16777216")
	result.Record = ""
	wantCode(t, db.Call(wire.OpResult, result, nil), "", "")
}
