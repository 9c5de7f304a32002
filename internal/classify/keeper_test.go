package classify

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// fleet is a server in memory, with a script that a test can break.
type fleet struct {
	mu      sync.Mutex
	has     map[tutti.NodeName]bool
	broken  map[tutti.NodeName]bool
	asked   map[tutti.NodeName]int
	failed  map[tutti.NodeName]int
	now     int
	most    int
	takes   time.Duration
	forgets []tutti.NodeName
}

func newFleet(nodes ...tutti.NodeName) *fleet {
	f := &fleet{has: map[tutti.NodeName]bool{}, broken: map[tutti.NodeName]bool{}, asked: map[tutti.NodeName]int{}, failed: map[tutti.NodeName]int{}}
	for _, n := range nodes {
		f.has[n] = false
	}
	return f
}

func (f *fleet) Classified(context.Context) (map[tutti.NodeName]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[tutti.NodeName]bool{}
	for n, has := range f.has {
		out[n] = has
	}
	return out, nil
}

func (f *fleet) Classify(_ context.Context, node tutti.NodeName, answer *tutti.Classification) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.has[node] = answer != nil
	if answer == nil {
		f.forgets = append(f.forgets, node)
	}
	return nil
}

func (f *fleet) Unclassified(node tutti.NodeName, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed[node]++
}

func (f *fleet) ask(ctx context.Context, node tutti.NodeName) (tutti.Classification, error) {
	f.mu.Lock()
	f.asked[node]++
	f.now++
	f.most = max(f.most, f.now)
	broken, takes := f.broken[node], f.takes
	f.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	if broken {
		return tutti.Classification{}, errors.New("no such node")
	}
	return tutti.Classification{}, nil
}

// copied returns a copy that a test may read while the keeper runs.
func (f *fleet) copied() (asked, failed map[tutti.NodeName]int, has map[tutti.NodeName]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.asked), maps.Clone(f.failed), maps.Clone(f.has)
}

// keeping runs a keeper on a fake clock. The function `wait` lets time pass.
func keeping(t *testing.T, f *fleet, c Config, do func(wait func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			(&Keeper{Source: f, Config: c, Logger: slog.New(slog.DiscardHandler), Ask: f.ask}).Run(ctx)
			close(ended)
		}()
		do(func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		})
		stop()
		<-ended
	})
}

// Every node is asked about when it joins, and again when its answer has become old. After a failure the script is asked
// sooner.
func TestEachAnswerHasAnAge(t *testing.T) {
	f := newFleet("a", "b")
	f.broken["b"] = true
	keeping(t, f, Config{Every: 5 * time.Minute, Parallel: 2}, func(wait func(time.Duration)) {
		wait(2 * time.Second)
		asked, _, _ := f.copied()
		if diff := cmp.Diff(map[tutti.NodeName]int{"a": 1, "b": 1}, asked); diff != "" {
			t.Errorf("at the start: -want +got\n%s", diff)
		}
		f.mu.Lock()
		f.has["c"] = false
		f.mu.Unlock()
		wait(2 * time.Second)
		if asked, _, _ = f.copied(); asked["c"] != 1 {
			t.Errorf("the node that has joined was asked about %d times", asked["c"])
		}
		wait(4 * time.Minute)
		if asked, failed, has := f.copied(); asked["a"] != 1 || failed["b"] < 6 || has["b"] {
			t.Errorf("after 4 minutes: asked %v, failed %v, answers %v", asked, failed, has)
		}
		wait(2 * time.Minute)
		if asked, _, _ = f.copied(); asked["a"] != 2 {
			t.Errorf("after 6 minutes: asked about a %d times, want 2", asked["a"])
		}
	})
}

// At most Parallel calls run at one time, also if the script is slow and many nodes have joined.
func TestCallsAreBounded(t *testing.T) {
	var nodes []tutti.NodeName
	for n := 'a'; n <= 'z'; n++ {
		nodes = append(nodes, tutti.NodeName(n))
	}
	f := newFleet(nodes...)
	f.takes = 3 * time.Second
	keeping(t, f, Config{Every: time.Hour, Parallel: 3}, func(wait func(time.Duration)) {
		wait(time.Minute)
		asked, _, has := f.copied()
		for _, n := range nodes {
			if asked[n] != 1 || !has[n] {
				t.Errorf("%s was asked about %d times, want once; it has an answer: %t", n, asked[n], has[n])
			}
		}
	})
	if f.most != 3 {
		t.Errorf("%d calls ran at one time, want 3", f.most)
	}
}

// When the server ends, the calls end, and the keeper does not call this a failure of the script.
func TestTheKeeperEnds(t *testing.T) {
	f := newFleet("a")
	f.takes = time.Hour
	keeping(t, f, Config{Every: time.Hour, Parallel: 1}, func(wait func(time.Duration)) { wait(2 * time.Second) })
	if len(f.failed) != 0 || f.has["a"] {
		t.Errorf("failed %v, answers %v, want none", f.failed, f.has)
	}
}

func TestForget(t *testing.T) {
	f := newFleet("b", "a", "c")
	f.has["a"], f.has["b"] = true, true
	if err := Forget(t.Context(), f); err != nil || !cmp.Equal(f.forgets, []tutti.NodeName{"a", "b"}) {
		t.Errorf("%v, %v, want a and b", f.forgets, err)
	}
}
