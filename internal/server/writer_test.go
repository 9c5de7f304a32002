package server_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
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

// heldLog makes appends wait until a test lets them pass.
type heldLog struct {
	*memory.Log
	hold    atomic.Bool
	pass    chan struct{}
	batches atomic.Int64
}

func (l *heldLog) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	l.batches.Add(1)
	if l.hold.Load() {
		<-l.pass
	}
	return l.Log.Append(ctx, last, events)
}

func TestAnswersLeaveAfterTheAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &heldLog{Log: memory.NewLog(), pass: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) { o.Log = log })
		log.hold.Store(true)
		before := log.batches.Load()

		var answered atomic.Int64
		var asked sync.WaitGroup
		ask := func(key string) {
			asked.Go(func() {
				if err := f.SetValue(servertest.Operator(), key, []byte("1")); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				answered.Add(1)
			})
		}
		ask("shared/first")
		synctest.Wait() // the append is still waiting
		for i := range 20 {
			ask(fmt.Sprintf("shared/%d", i))
		}
		synctest.Wait()
		if got := answered.Load(); got != 0 {
			t.Fatalf("%d answers left before anything was on disk", got)
		}
		log.pass <- struct{}{}
		synctest.Wait()
		if got := answered.Load(); got != 1 {
			t.Errorf("%d answers after the first append, want that of the one command in it", got)
		}
		log.pass <- struct{}{}
		asked.Wait()
		if got := log.batches.Load() - before; got != 2 {
			t.Errorf("%d appends, want one for the first command and one for those that waited meanwhile", got)
		}
	})
}

func TestCommandsOfOneAppendSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &heldLog{Log: memory.NewLog(), pass: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) { o.Log = log })
		log.hold.Store(true)
		var asked sync.WaitGroup
		for range 10 { // the first call emits the event, and the nine other calls find the value set
			asked.Go(func() {
				if err := f.SetValue(servertest.Operator(), "shared/x", []byte("1")); err != nil {
					t.Error(err)
				}
			})
		}
		for range 2 {
			synctest.Wait()
			select {
			case log.pass <- struct{}{}:
			default: // there was nothing more to append
			}
		}
		asked.Wait()
		if diff := cmp.Diff([]string{"value.set"}, servertest.Kinds(servertest.Events(t, log))); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

func TestARefusedAppendEndsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &heldLog{Log: memory.NewLog(), pass: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) { o.Log = log })
		log.hold.Store(true)
		errs := make(chan error, 10)
		for i := range cap(errs) {
			go func() { errs <- f.SetValue(servertest.Operator(), fmt.Sprintf("shared/%d", i), []byte("1")) }()
		}
		synctest.Wait()
		// Another writer appends an event.
		foreign := []tutti.Event{{Body: &tutti.TokenRevoked{Token: "x"}}}
		if _, err := log.Log.Append(context.Background(), 1, foreign); err != nil {
			t.Fatal(err)
		}
		log.hold.Store(false)
		close(log.pass)
		for range cap(errs) {
			wantCode(t, <-errs, tutti.CodeUnavailable, "")
		}
		if err := endOf(t, f); tutti.CodeOf(err) != tutti.CodeConflict {
			t.Errorf("the server ended with %v, want the refused append", err)
		}
		wantCode(t, f.SetValue(servertest.Operator(), "shared/x", []byte("1")), tutti.CodeUnavailable, "not serving")
		if diff := cmp.Diff([]string{"token.revoked"}, servertest.Kinds(servertest.Events(t, log))); diff != "" {
			t.Errorf("log -want +got\n%s", diff)
		}
	})
}

// endOf waits for the end of the server, but at most for a minute of the test's clock.
func endOf(t *testing.T, f *servertest.Fleet) error {
	t.Helper()
	end := make(chan error, 1)
	go func() { end <- f.Wait() }() // the end of the test ends the server
	select {
	case err := <-end:
		return err
	case <-time.After(time.Minute):
		t.Fatal("waited a minute for the server to end: it goes on after an append that was refused")
		return nil
	}
}

func TestALogThatDoesNotAnswerEndsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t, func(o *server.Options) { o.Log = stuckLog{memory.NewLog()} })
		wantCode(t, f.SetValue(servertest.Operator(), "shared/x", []byte("1")), tutti.CodeUnavailable, "did not answer in time")
		if err := f.Wait(); err == nil {
			t.Error("the server goes on without a log")
		}
	})
}

type stuckLog struct{ *memory.Log }

func (l stuckLog) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	if last == 0 { // the server begins its first epoch
		return l.Log.Append(ctx, last, events)
	}
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

func TestAServerThatCannotReadItsLogDoesNotServe(t *testing.T) {
	broken := errors.New("broken")
	log := memory.NewLog()
	if _, err := log.Append(t.Context(), 0, []tutti.Event{{Body: &tutti.ExportsSet{Node: "n", Count: 1, Set: tutti.DigestOf([]byte("gone"))}}}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		log    tutti.Log
		is     error
	}{
		"unreadable": {"no event is skipped", brokenLog{log, broken}, broken},
		"no blob":    {"an export set that is not there is no empty set", log, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := server.New(server.Options{Log: tc.log, Blobs: memory.NewBlobs(), Bus: &servertest.Bus{}, Identity: &servertest.Identity{}})
			err := s.Run(t.Context())
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) || tc.is == nil && tutti.CodeOf(err) != tutti.CodeDamaged {
				t.Fatalf("%s: Run ended with %v, code %q", tc.reason, err, tutti.CodeOf(err))
			}
			select {
			case <-s.Ready():
				t.Errorf("%s: it was ready", tc.reason)
			default:
			}
			_, err = s.ListJobs(t.Context())
			wantCode(t, err, tutti.CodeUnavailable, "")
		})
	}
}

// brokenLog is a log that returns an error for each read.
type brokenLog struct {
	tutti.Log
	err error
}

func (l brokenLog) Read(context.Context, uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) { yield(tutti.Event{}, l.err) }
}

// TestAPausedServerJudgesNobody stops the writer for a minute, as a signal or a virtual
// machine can do. A node that the server could not hear in this minute is not lost. If the
// node stays silent, it is lost after another full deadline.
func TestAPausedServerJudgesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool
		f := servertest.Start(t, func(o *server.Options) {
			o.NewRunID = func() tutti.RunID {
				if held.CompareAndSwap(true, false) {
					<-time.After(time.Minute)
				}
				return servertest.NewRunID()
			}
		})
		db := f.Join("db-01")
		f.Join("web-01")
		f.Join("web-02")
		f.Push(twoSteps + "  other:\n    steps:\n      - run: web\n")
		job := f.Start("deploy", tutti.ModeApply)
		order := db.MustClaim()
		db.Gate(wire.Gate{Run: order.Run})

		held.Store(true)
		f.Start("other", tutti.ModeApply) // the writer stands still for a minute
		time.Sleep(29 * time.Second)
		wantVerdict(t, f, job, "")
		time.Sleep(2 * time.Second)
		wantVerdict(t, f, job, tutti.VerdictFailed)
	})
}
