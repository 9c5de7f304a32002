package sweep_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/storetest"
	"github.com/tutti-project/tutti/internal/sweep"
)

func TestBlobs(t *testing.T) {
	storetest.TestBlobs(t, func(*testing.T) (tutti.Blobs, func() tutti.Blobs) {
		store := memory.NewBlobs()
		open := func() tutti.Blobs {
			swept := sweep.New(store, time.Now)
			return both{swept, store, swept}
		}
		return open(), open
	})
}

type both struct {
	tutti.Blobs
	tutti.Sweeping
	tutti.Sizing
}

func nothing(context.Context) (map[tutti.Digest]bool, error) { return nil, nil }

func put(t *testing.T, b tutti.Blobs, content string) tutti.Digest {
	t.Helper()
	d, err := b.Put(t.Context(), []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatStays(t *testing.T) {
	const named = "named"
	cases := map[string]struct {
		reason string
		before func(t *testing.T, b *sweep.Blobs, d tutti.Digest) // work before the sweep
		stays  bool
	}{
		"unused": {"nobody has used it for an hour", func(*testing.T, *sweep.Blobs, tutti.Digest) { time.Sleep(time.Hour) }, false},
		"young":  {"it was stored within the hour", func(*testing.T, *sweep.Blobs, tutti.Digest) { time.Sleep(time.Hour - 1) }, true},
		"asked for": {"somebody was told that it is there", func(t *testing.T, b *sweep.Blobs, d tutti.Digest) {
			time.Sleep(time.Hour)
			if has, err := b.Has(t.Context(), d); err != nil || !has {
				t.Fatal(has, err)
			}
		}, true},
		"read": {"somebody has it", func(t *testing.T, b *sweep.Blobs, d tutti.Digest) {
			time.Sleep(time.Hour)
			if _, err := b.Get(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}, true},
		"stored again": {"somebody is about to name it", func(t *testing.T, b *sweep.Blobs, _ tutti.Digest) {
			time.Sleep(time.Hour)
			put(t, b, "content")
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.NewBlobs()
				b := sweep.New(store, time.Now)
				d, kept := put(t, b, "content"), put(t, b, named)
				tc.before(t, b, d)
				swept, err := b.Sweep(t.Context(), func(context.Context) (map[tutti.Digest]bool, error) {
					return map[tutti.Digest]bool{kept: true}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if has, _ := store.Has(t.Context(), d); has != tc.stays || (swept.Removed == 0) != tc.stays {
					t.Errorf("%s: it is there: %v, want %v; swept %+v", tc.reason, has, tc.stays, swept)
				}
				if has, _ := store.Has(t.Context(), kept); !has {
					t.Error("what is named was removed")
				}
			})
		})
	}
}

func TestAfterAStartNothingIsRemovedForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewBlobs()
		d := put(t, store, "of a server before, a day ago or a second")
		b := sweep.New(store, time.Now)
		time.Sleep(sweep.Idle - 1)
		for _, want := range []bool{true, false} {
			if _, err := b.Sweep(t.Context(), nothing); err != nil {
				t.Fatal(err)
			}
			if has, _ := store.Has(t.Context(), d); has != want {
				t.Fatalf("it is there: %v, want %v", has, want)
			}
			time.Sleep(time.Nanosecond)
		}
	})
}

// slowStore makes each removal wait until the test lets it pass.
type slowStore struct {
	*memory.Blobs
	pass chan struct{}
}

func (s slowStore) Delete(ctx context.Context, d tutti.Digest) error {
	<-s.pass
	return s.Blobs.Delete(ctx, d)
}

// A push during the removal of content must not get the answer that the content exists.
func TestAPushDuringARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slowStore{memory.NewBlobs(), make(chan struct{})}
		b := sweep.New(store, time.Now)
		d := put(t, b, "content")
		time.Sleep(sweep.Idle)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := b.Sweep(t.Context(), nothing); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the removal has begun and waits
		var has, done bool
		wg.Go(func() {
			has, _ = b.Has(t.Context(), d)
			put(t, b, "content")
			done = true
		})
		synctest.Wait()
		if done {
			t.Fatal("the push has not waited for the removal")
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Get(impatient, d); tutti.CodeOf(err) != tutti.CodeUnavailable {
			t.Errorf("whoever does not wait: %v", err)
		}
		store.pass <- struct{}{}
		wg.Wait()
		if has {
			t.Error("Has was true of what was removed then")
		}
		if got, err := b.Get(t.Context(), d); err != nil || string(got) != "content" {
			t.Errorf("what was pushed during the removal: %q, %v", got, err)
		}
	})
}

// Many goroutines push the same content during a sweep, and each asks first whether the content exists.
// A goroutine that got yes, or has stored the content, must still find it an hour later.
func TestPushesAndSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewBlobs()
		b := sweep.New(store, time.Now)
		time.Sleep(sweep.Idle)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 200 {
					content := fmt.Sprintf("file %d", k%7)
					if has, err := b.Has(t.Context(), tutti.DigestOf([]byte(content))); err != nil || !has {
						put(t, b, content)
					}
					time.Sleep(time.Duration(i*k) % (sweep.Idle - 1))
					if has, _ := store.Has(t.Context(), tutti.DigestOf([]byte(content))); !has {
						t.Errorf("%s was removed under who pushed it", content)
					}
					time.Sleep(time.Duration(i+k) * 20 * time.Minute)
				}
			})
		}
		removed := 0
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for {
			swept, err := b.Sweep(t.Context(), nothing)
			if err != nil {
				t.Fatal(err)
			}
			removed += swept.Removed
			select {
			case <-done:
				if removed == 0 {
					t.Error("nothing was ever removed: the test has shown nothing")
				}
				return
			case <-time.After(time.Minute):
			}
		}
	})
}

func TestNothingIsRemovedIfItIsNotKnownWhatIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewBlobs()
		b := sweep.New(store, time.Now)
		d := put(t, b, "content")
		time.Sleep(sweep.Idle)
		_, err := b.Sweep(t.Context(), func(context.Context) (map[tutti.Digest]bool, error) {
			return nil, tutti.Errorf(tutti.CodeInternal, "the log cannot be read")
		})
		if tutti.CodeOf(err) != tutti.CodeInternal {
			t.Errorf("error %v, want that of who names", err)
		}
		if has, _ := store.Has(t.Context(), d); !has {
			t.Error("it was removed")
		}
	})
}
