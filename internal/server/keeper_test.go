package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/audit"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/internal/sweep"
	"github.com/tutti-project/tutti/wire"
)

const snapshotEvery = 20

// The type `trimming` is a server that drops old events early. For comparison, the type also has all events that
// the server's log ever had.
type trimming struct {
	*servertest.Fleet
	log  *allLog
	db   *servertest.Node
	keys *servertest.Keys
}

// allLog remembers the events that the log has dropped. A test can make the log fail at some places.
type allLog struct {
	*memory.Log
	mu  sync.Mutex
	all []tutti.Event
	at  func(point string) error
}

func (l *allLog) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	_, snapshot := events[0].Body.(*tutti.SnapshotTaken)
	if err := l.point("before snapshot.taken", snapshot); err != nil {
		return 0, err
	}
	seq, err := l.Log.Append(ctx, last, events)
	if err == nil {
		l.mu.Lock()
		l.all = append(l.all, events...)
		l.mu.Unlock()
		err = l.point("after snapshot.taken", snapshot)
	}
	return seq, err
}

func (l *allLog) Trim(ctx context.Context, through uint64) error {
	if err := l.point("before the log lets go", true); err != nil {
		return err
	}
	if err := l.Log.Trim(ctx, through); err != nil {
		return err
	}
	return l.point("after the log has let go", true)
}

func (l *allLog) point(name string, here bool) error {
	if l.at == nil || !here {
		return nil
	}
	return l.at(name)
}

// The method `everything` returns all events, also the dropped ones. Their exports are loaded.
func (l *allLog) everything() []tutti.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func lettingGo(log tutti.Log) func(*server.Options) {
	return func(o *server.Options) {
		o.Log, o.SnapshotEvery, o.Keep = log, snapshotEvery, engine.Keep{Jobs: 3, Runs: 100}
	}
}

// startPast starts a server with one node. The function must run in a synctest bubble.
func startPast(t *testing.T, change ...func(*server.Options)) *trimming {
	t.Helper()
	log, keys := &allLog{Log: memory.NewLog()}, servertest.MakeKeys()
	f := servertest.Start(t, append([]func(*server.Options){lettingGo(log), withKeys(keys)}, change...)...)
	f.Log = log.Log
	p := &trimming{Fleet: f, log: log, db: f.Join("db-01"), keys: keys}
	f.Push(onePlan)
	return p
}

// The method `again` starts another server with the log and the blobs of this server.
func (p *trimming) again(t *testing.T) *trimming {
	t.Helper()
	_ = p.Stop()
	log := &allLog{Log: p.log.Log, all: p.log.all}
	f := servertest.Resume(t, log.Log, p.Blobs, lettingGo(log), withKeys(p.keys))
	return &trimming{Fleet: f, log: log, db: f.Node("db-01"), keys: p.keys}
}

const onePlan = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01]}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
plans:
  deploy:
    steps: [{run: db}]
`

// The method `jobs` starts and completes this many jobs, one after the other.
func (p *trimming) jobs(t *testing.T, n int) []tutti.JobID {
	t.Helper()
	var out []tutti.JobID
	for range n {
		job, err := p.job()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, job)
	}
	return out
}

// The method `job` starts and completes a job with one run. The run exports a resource, publishes a value, and
// stores a record.
func (p *trimming) job() (tutti.JobID, error) {
	job, err := p.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	if err != nil {
		return "", err
	}
	var claimed wire.Claimed
	if err := p.db.Call(wire.OpClaim, wire.Claim{}, &claimed); err != nil {
		return "", err
	}
	run := claimed.Order.Run
	gate := wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Values: []string{"db/x"}}, Exports: []tutti.Export{database(string(run))}}
	if err := p.db.Call(wire.OpGate, gate, nil); err != nil {
		return "", err
	}
	if err := p.db.Publish(run, "db/x", fmt.Sprintf("%q", run)); err != nil {
		return "", err
	}
	raw := fmt.Appendf(nil, `{"run":%q}`, run)
	if _, err := p.Handle(context.Background(), p.db.Key, wire.OpBlobPut, raw); err != nil {
		return "", err
	}
	result := servertest.Result(run, tutti.Changed)
	result.Record = tutti.DigestOf(raw)
	return job, p.db.Call(wire.OpResult, result, nil)
}

func (p *trimming) wantWhole(t *testing.T) {
	t.Helper()
	now := p.State()
	synctest.Wait() // the call may have caused a snapshot
	if diff := server.Fold(p.log.everything()).Diff(now, time.Now()); diff != "" {
		t.Errorf("-all that ever was +the server\n%s", diff)
	}
	p.State() // without this call, the writer could do its next work during the comparison
}

// The method `first` returns the number of the first event that the log still has.
func (p *trimming) first(t *testing.T) uint64 {
	t.Helper()
	e, found, err := p.log.Snapshot(t.Context())
	if err != nil || !found {
		t.Fatalf("the latest snapshot: %v, %v", found, err)
	}
	through := e.Body.(*tutti.SnapshotTaken).Through
	for e, err := range p.log.Read(t.Context(), through) {
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range p.log.Read(t.Context(), through-1) {
			if tutti.CodeOf(err) != tutti.CodeNotFound {
				t.Errorf("the log still has what the snapshot of %d has (%v)", through, err)
			}
			break
		}
		return e.Seq
	}
	return 0
}

func TestTheLogLetsGoOfWhatASnapshotHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		for range 4 {
			p.jobs(t, 5)
			synctest.Wait()
		}
		if first := p.first(t); first < 100 {
			t.Errorf("the log begins with event %d of %d", first, len(p.log.all))
		}
		p.wantWhole(t)
		p = p.again(t)
		p.wantWhole(t)
		if job := p.jobs(t, 1)[0]; job != "deploy-21" {
			t.Errorf("the next job is %s, want deploy-21", job)
		}
		p.wantWhole(t)
	})
}

// points are all places between two steps of a snapshot.
var points = []string{
	"before the snapshot's blob", "after the snapshot's blob",
	"before the segment's blob", "after the segment's blob",
	"before snapshot.taken", "after snapshot.taken",
	"before the log lets go", "after the log has let go",
}

// pointBlobs is a blob store that fails before or after it stores a snapshot.
type pointBlobs struct {
	*sweep.Blobs
	at func(point string) error
}

func (b pointBlobs) Put(ctx context.Context, content []byte) (tutti.Digest, error) {
	what := ""
	if zipped, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
		text, _ := io.ReadAll(zipped)
		what = "the snapshot's blob"
		if !bytes.Contains(text[:min(len(text), 100)], []byte("snapshot")) {
			what = "the segment's blob"
		}
		if err := b.at("before " + what); err != nil {
			return "", err
		}
	}
	digest, err := b.Blobs.Put(ctx, content)
	if err == nil && what != "" {
		err = b.at("after " + what)
	}
	return digest, err
}

// TestASnapshotMayBeCutOffAnywhere kills the server between any two steps of its
// second snapshot. The next server must have the same state. The next server must complete
// the snapshot or take it again, and leave nothing behind.
func TestASnapshotMayBeCutOffAnywhere(t *testing.T) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				killed := errors.New("killed")
				var reached atomic.Int32
				at := func(here string) error {
					if here == point && reached.Add(1) >= 2 {
						return killed
					}
					return nil
				}
				store := memory.NewBlobs()
				p := startPast(t, func(o *server.Options) {
					o.Blobs = pointBlobs{sweep.New(store, time.Now), at}
					o.Log.(*allLog).at = at
				})
				p.Blobs = store
				for range 30 {
					if _, err := p.job(); err != nil || reached.Load() >= 2 {
						break // the kill has interrupted some of the steps
					}
					synctest.Wait()
				}
				if reached.Load() < 2 {
					t.Fatalf("%q was reached %d times", point, reached.Load())
				}
				p = p.again(t)
				synctest.Wait()
				p.first(t) // the method `first` also waits until the log has dropped the events of the snapshot
				p.wantWhole(t)
				time.Sleep(time.Minute) // after this time the interrupted work is given up
				p.jobs(t, 4)
				synctest.Wait()
				p.first(t)
				p.wantWhole(t)

				time.Sleep(3 * time.Hour)
				p.wantSwept(t)
				p = p.again(t)
				synctest.Wait() // the keeper has looked for events that the log can drop
				p.wantWhole(t)
			})
		})
	}
}

// wantSwept fails if there are blobs that a server in this state does not need.
func (p *trimming) wantSwept(t *testing.T) {
	t.Helper()
	stored, err := p.Blobs.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// There are a record and a set of exports for each job, including the jobs whose events are still in
	// the log. There are also code and its manifest, the snapshot, and segments of the trail.
	if most := 2*(3+snapshotEvery) + 10; len(stored) > most {
		t.Errorf("%d blobs are there, at most %d are needed", len(stored), most)
	}
}

// The method `trail` returns the whole audit trail, verified.
func (p *trimming) trail(t *testing.T) []api.AuditEntry {
	t.Helper()
	e, found, err := p.log.Snapshot(t.Context())
	if err != nil || !found {
		t.Fatal(found, err)
	}
	taken := e.Body.(*tutti.SnapshotTaken)
	var out []api.AuditEntry
	var chain audit.Chain
	add := func(e api.AuditEntry, err error) {
		if err == nil {
			err = chain.Add(e)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	for i, segment := range taken.Segments {
		blob, err := p.Blobs.Get(t.Context(), segment.Blob)
		if err != nil {
			t.Fatalf("segment of %d to %d: %v", segment.First, segment.Last, err)
		}
		for e, err := range audit.Entries(segment, blob) {
			if i > 0 {
				e.Before = ""
			}
			add(e, err)
		}
	}
	for e, err := range p.log.Entries(t.Context(), taken.Through) {
		add(audit.Of(e, ""), err)
	}
	return out
}

func TestTheTrailOfWhatWasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		for range 4 {
			p.jobs(t, 5)
			synctest.Wait()
		}
		p.first(t)
		all := p.log.everything()
		trail := p.trail(t)
		if len(trail) != len(all) || trail[0].Seq != 1 {
			t.Fatalf("%d entries from %d on, of %d events", len(trail), trail[0].Seq, len(all))
		}
		for i, e := range trail {
			if audit.Act(all[i]) && len(e.Raw) == 0 || e.Link != all[i].Link {
				t.Errorf("event %d (%s) is not in the trail as it was", e.Seq, all[i].Body.Kind())
			}
		}
		_ = p.Stop()
		time.Sleep(audit.Keep + time.Hour)
		p = p.again(t)
		p.jobs(t, 10)
		synctest.Wait()
		if first := p.trail(t)[0].Seq; first < 50 {
			t.Errorf("after 400 days the trail begins with entry %d", first)
		}
	})
}

func TestTheWriterDoesNotWaitForASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		p := startPast(t, func(o *server.Options) {
			o.Blobs = pointBlobs{sweep.New(memory.NewBlobs(), time.Now), func(string) error {
				select {
				case held <- struct{}{}:
				default:
				}
				<-hold
				return nil
			}}
		})
		p.jobs(t, 5)
		<-held
		p.jobs(t, 3) // jobs go on while a snapshot is held, and no other snapshot becomes due
		close(hold)
		synctest.Wait()
		p.first(t)
	})
}

// TestASnapshotComesLaterIfItKeepsMuch: a snapshot is due when the log has at least half as many new events as the latest
// snapshot has. Otherwise the cost of each event would grow with the number of kept events.
func TestASnapshotComesLaterIfItKeepsMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		emit := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				if err := p.EmitBy("operator:ada", &tutti.ValueSet{Key: fmt.Sprintf("shared/%d", i), Value: []byte("1")}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
		}
		taken := func() *tutti.SnapshotTaken {
			t.Helper()
			e, found, err := p.log.Snapshot(t.Context())
			if err != nil || !found {
				t.Fatal(found, err)
			}
			return e.Body.(*tutti.SnapshotTaken)
		}
		emit(0, 10*snapshotEvery)
		before, end := taken(), len(p.log.everything())
		if before.Events < 5*snapshotEvery {
			t.Fatalf("the snapshot has only %d events", before.Events)
		}
		due := int(before.Through) + before.Events/2
		emit(end, due-1)
		if got := taken(); got.Through != before.Through {
			t.Errorf("the next snapshot came at event %d, want it after event %d", got.Through, due)
		}
		emit(due-1, due)
		if got := taken(); got.Through != uint64(due) {
			t.Errorf("the latest snapshot has the events up to %d, want %d", got.Through, due)
		}
	})
}

// TestAServerThatEndsSoonTakesItsSnapshot checks servers that end as soon as they serve, for
// example because the first message kills them.
func TestAServerThatEndsSoonTakesItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t, func(o *server.Options) { o.SnapshotEvery = 1000 })
		p.jobs(t, 10)
		_ = p.Stop()
		if e, found, err := p.log.Snapshot(t.Context()); found || err != nil {
			t.Fatalf("there is a snapshot before: %v, %v", e, err)
		}
		p = p.again(t)
		_ = p.Stop()
		p.first(t)
		p = p.again(t)
		p.wantWhole(t)
		p.wantTrail(t)
	})
}

func TestASnapshotThatFailsIsTakenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		var tries atomic.Int32
		fails.Store(true)
		store := memory.NewBlobs()
		p := startPast(t, func(o *server.Options) {
			o.Blobs = pointBlobs{sweep.New(store, time.Now), func(string) error {
				if tries.Add(1); fails.Load() {
					return errors.New("no space left on device")
				}
				return nil
			}}
		})
		p.Blobs = store
		p.jobs(t, 10)
		synctest.Wait()
		if got := tries.Load(); got != 1 {
			t.Errorf("%d tries at once, want 1", got)
		}
		fails.Store(false)
		time.Sleep(2 * time.Minute)
		p.first(t)
		p.wantWhole(t)
	})
}

func TestAServerDoesNotStartWithoutItsSnapshot(t *testing.T) {
	zip := func(text string) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return out.Bytes()
	}
	unzip := func(stored []byte) string {
		r, err := gzip.NewReader(bytes.NewReader(stored))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		return string(text)
	}
	cases := map[string]struct {
		reason string
		damage func(stored []byte) []byte
	}{
		"missing":     {"the blob is gone", func([]byte) []byte { return nil }},
		"empty":       {"an empty blob is no empty past", func([]byte) []byte { return []byte{} }},
		"cut off":     {"half of it is there", func(b []byte) []byte { return b[:len(b)/2] }},
		"end cut off": {"its last bytes are gone", func(b []byte) []byte { return b[:len(b)-4] }},
		"a bit":       {"one bit is another", func(b []byte) []byte { b[len(b)/2] ^= 4; return b }},
		"fewer": {"it ends after a whole line", func(b []byte) []byte {
			s := unzip(b)
			return zip(s[:bytes.LastIndexByte([]byte(s[:len(s)-1]), '\n')+1])
		}},
		"another":     {"it is of another past", func([]byte) []byte { return zip(`{"tutti":"snapshot","v":1,"through":3,"link":""}` + "\n") }},
		"no snapshot": {"it is something else", func([]byte) []byte { return zip("notify { 'hello': }\n") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startPast(t)
				p.jobs(t, 10)
				synctest.Wait()
				p.first(t)
				_ = p.Stop()
				e, _, _ := p.log.Snapshot(t.Context())
				s := server.New(server.Options{
					Log: p.log, Blobs: damagedBlobs{p.Blobs, e.Body.(*tutti.SnapshotTaken).State, tc.damage},
					Bus: &servertest.Bus{}, Identity: &servertest.Identity{}, Logger: slog.New(slog.DiscardHandler),
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				wantCode(t, s.Run(ctx), tutti.CodeDamaged, "the snapshot of the events up to")
				select {
				case <-s.Ready():
					t.Errorf("%s: it serves", tc.reason)
				default:
				}
			})
		})
	}
}

// damagedBlobs is a store in which one blob has changed content.
type damagedBlobs struct {
	*memory.Blobs
	which  tutti.Digest
	damage func([]byte) []byte
}

func (b damagedBlobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	content, err := b.Blobs.Get(ctx, digest)
	if err == nil && digest == b.which {
		if content = b.damage(content); content == nil {
			return nil, tutti.Errorf(tutti.CodeNotFound, "blob %s is not stored", digest)
		}
	}
	return content, err
}
