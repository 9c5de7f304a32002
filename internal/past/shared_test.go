package past

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
)

// The function `ran` stores the questions of a run, as a server does, and returns their digest.
func ran(t *testing.T, s *Past, value string, keys ...string) StoredQuestions {
	t.Helper()
	reads := []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}, Found: true, Digest: tutti.DigestOf([]byte(value))}}
	var all []tutti.KeyRead
	for _, k := range keys {
		all = append(all, tutti.KeyRead{Key: k})
	}
	out, err := s.StoreQuestions(t.Context(), nil, reads, all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// countedBlobs counts the reads of a store.
type countedBlobs struct {
	tutti.Blobs
	read int
}

func (b *countedBlobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	b.read++
	return b.Blobs.Get(ctx, digest)
}

// TestWhatRunsAskedIsKeptOnce checks that equal questions are in memory only once, also after a server
// has read them at its start. Different questions with equal absent keys share the list of these keys.
func TestWhatRunsAskedIsKeptOnce(t *testing.T) {
	blobs := &countedBlobs{Blobs: memory.NewBlobs()}
	first := New(Options{Blobs: blobs})
	a, same, other := ran(t, first, "1", "k1", "k2"), ran(t, first, "1", "k1", "k2"), ran(t, first, "2", "k1", "k2")
	if a.Content != same.Content || a.Content == other.Content {
		t.Error("equal content is not shared, or different content is")
	}
	if &a.Content.Keys[0] != &other.Content.Keys[0] {
		t.Error("the absent keys of different content are not shared")
	}
	next := New(Options{Blobs: blobs})
	var loaded []*tutti.Questions
	for _, digest := range []tutti.Digest{a.Digest, other.Digest, a.Digest, other.Digest} {
		content, err := next.loadAsked(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		loaded = append(loaded, content)
	}
	if diff := cmp.Diff([]*tutti.Questions{a.Content, other.Content}, loaded[:2]); diff != "" {
		t.Errorf("after a restart: -want +got\n%s", diff)
	}
	if loaded[0] != loaded[2] || loaded[1] != loaded[3] || &loaded[0].Keys[0] != &loaded[1].Keys[0] {
		t.Error("what was loaded is not shared")
	}
	if blobs.read != 3 {
		t.Errorf("%d blobs were read, want two contents and one list of keys", blobs.read)
	}
}

// TestWhatNobodyAskedAnyMoreGoes checks that questions are removed from memory when no code uses
// them. Absent keys stay as long as some questions use them.
func TestWhatNobodyAskedAnyMoreGoes(t *testing.T) {
	blobs := memory.NewBlobs()
	s := New(Options{Blobs: blobs})
	stays := ran(t, s, "stays", "k1")
	for i := range 100 {
		ran(t, s, fmt.Sprint(i), "k1")
		ran(t, s, "other", fmt.Sprint(i))
	}
	asked, absent := 0, 0
	for range 1000 {
		runtime.GC() // the garbage collector reports unused content in another goroutine
		s.asked.mu.Lock()
		asked, absent = len(s.asked.asked), len(s.asked.absent)
		s.asked.mu.Unlock()
		if asked == 1 && absent == 1 {
			break
		}
	}
	if asked != 1 || absent != 1 {
		t.Errorf("%d contents and %d lists of keys are left, want 1 and 1", asked, absent)
	}
	if again := ran(t, s, "stays", "k1"); again.Content != stays.Content {
		t.Error("what is kept is not known")
	}
	runtime.KeepAlive(stays)
}
