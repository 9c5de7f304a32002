package sweep

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
)

// TestWhoAsksForNothingCostsNothing checks that requests for missing content use no memory.
func TestWhoAsksForNothingCostsNothing(t *testing.T) {
	b := New(memory.NewBlobs(), time.Now)
	stored, err := b.Put(t.Context(), []byte("there"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		missing := tutti.DigestOf([]byte("not there"))
		if has, err := b.Has(t.Context(), missing); has || err != nil {
			t.Fatal(has, err)
		}
		if _, err := b.Get(t.Context(), missing); err == nil {
			t.Fatal("it was there")
		}
		if has, err := b.Has(t.Context(), stored); !has || err != nil {
			t.Fatal(has, err)
		}
	}
	if len(b.used) != 1 || b.used[stored] == nil {
		t.Errorf("it knows of %d, want of what is stored", len(b.used))
	}
}
