package storetest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-project/tutti"
)

// OpenBlobs makes an empty store. The function `reopen` opens the same store again.
type OpenBlobs func(t *testing.T) (blobs tutti.Blobs, reopen func() tutti.Blobs)

// TestBlobs runs the suite of tutti.Blobs.
func TestBlobs(t *testing.T, open OpenBlobs) {
	for _, c := range []struct {
		reason string
		test   func(t *testing.T, blobs tutti.Blobs, reopen func() tutti.Blobs)
	}{
		{"content of any size comes back under its digest", blobsRoundTrip},
		{"storing the same content again is no error", blobsTwice},
		{"many goroutines can store the same content at once", blobsConcurrent},
		{"many goroutines can store new and existing content at once", blobsGathered},
		{"content that is not stored is not found, and is not returned as empty content", blobsMissing},
		{"a text that is not a digest is invalid", blobsInvalid},
		{"a store owns its content", blobsOwned},
		{"a cancelled call returns the error of its context", blobsCancelled},
		{"the size of content is known without reading it", blobsSize},
		{"deleted content is not found, and can be stored again", blobsDelete},
	} {
		t.Run(c.reason, func(t *testing.T) {
			blobs, reopen := open(t)
			c.test(t, blobs, reopen)
		})
	}
}

// The function `pattern` returns content in which no chunk repeats, at any chunk size.
func pattern(size int) []byte {
	content := make([]byte, size)
	state := uint32(size)*2654435761 + 1
	for i := range content {
		state = state*1664525 + 1013904223
		content[i] = byte(state >> 24)
	}
	return content
}

func wantBlob(t *testing.T, blobs tutti.Blobs, content []byte) {
	t.Helper()
	digest := tutti.DigestOf(content)
	if ok, err := blobs.Has(t.Context(), digest); err != nil || !ok {
		t.Errorf("Has(%s) of %d bytes: %v, %v; want true", digest, len(content), ok, err)
	}
	got, err := blobs.Get(t.Context(), digest)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("Get(%s): %d bytes, %v; want the %d bytes stored", digest, len(got), err, len(content))
	}
}

func mustPut(t *testing.T, blobs tutti.Blobs, content []byte) {
	t.Helper()
	digest, err := blobs.Put(t.Context(), content)
	if err != nil || digest != tutti.DigestOf(content) {
		t.Fatalf("Put of %d bytes: %q, %v; want %q", len(content), digest, err, tutti.DigestOf(content))
	}
}

func blobsRoundTrip(t *testing.T, blobs tutti.Blobs, reopen func() tutti.Blobs) {
	sizes := []int{0, 1, 1000, 64 << 10, 128 << 10, 128<<10 + 1, 1 << 20, 5<<20 + 7}
	for _, size := range sizes {
		mustPut(t, blobs, pattern(size))
	}
	again := reopen()
	for _, size := range sizes {
		wantBlob(t, blobs, pattern(size))
		wantBlob(t, again, pattern(size))
	}
}

func blobsTwice(t *testing.T, blobs tutti.Blobs, reopen func() tutti.Blobs) {
	for _, size := range []int{0, 10, 300 << 10} {
		mustPut(t, blobs, pattern(size))
		mustPut(t, blobs, pattern(size))
		mustPut(t, reopen(), pattern(size))
		wantBlob(t, blobs, pattern(size))
	}
}

func blobsConcurrent(t *testing.T, blobs tutti.Blobs, _ func() tutti.Blobs) {
	var wg sync.WaitGroup
	for i := range 8 {
		content := pattern(400<<10 + i%2)
		wg.Go(func() {
			if _, err := blobs.Put(t.Context(), content); err != nil {
				t.Errorf("Put: %v", err)
			}
		})
	}
	wg.Wait()
	wantBlob(t, blobs, pattern(400<<10))
	wantBlob(t, blobs, pattern(400<<10+1))
}

func blobsGathered(t *testing.T, blobs tutti.Blobs, _ func() tutti.Blobs) {
	const count = 60
	for i := 0; i < count; i += 10 {
		if _, err := blobs.Put(t.Context(), pattern(100+i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 2 * count { // each content twice
		wg.Go(func() {
			if _, err := blobs.Put(t.Context(), pattern(100+i/2)); err != nil {
				t.Errorf("Put: %v", err)
			}
		})
	}
	wg.Wait()
	for i := range count {
		wantBlob(t, blobs, pattern(100+i))
	}
}

func blobsMissing(t *testing.T, blobs tutti.Blobs, _ func() tutti.Blobs) {
	for _, content := range []string{"", "never stored"} {
		digest := tutti.DigestOf([]byte(content))
		if ok, err := blobs.Has(t.Context(), digest); err != nil || ok {
			t.Errorf("Has: %v, %v; want false", ok, err)
		}
		_, err := blobs.Get(t.Context(), digest)
		wantCode(t, err, tutti.CodeNotFound)
	}
}

func blobsInvalid(t *testing.T, blobs tutti.Blobs, _ func() tutti.Blobs) {
	for _, digest := range []tutti.Digest{"", "sha256:", "md5:0", "../../etc/passwd", "*", "sha256:>"} {
		_, err := blobs.Get(t.Context(), digest)
		wantCode(t, err, tutti.CodeInvalid)
		_, err = blobs.Has(t.Context(), digest)
		wantCode(t, err, tutti.CodeInvalid)
	}
}

func blobsOwned(t *testing.T, blobs tutti.Blobs, _ func() tutti.Blobs) {
	content := pattern(100)
	mustPut(t, blobs, content)
	content[0]++
	got, err := blobs.Get(t.Context(), tutti.DigestOf(pattern(100)))
	if err != nil {
		t.Fatal(err)
	}
	got[1]++
	wantBlob(t, blobs, pattern(100))
}

func blobsCancelled(t *testing.T, blobs tutti.Blobs, _ func() tutti.Blobs) {
	content := pattern(100)
	mustPut(t, blobs, content)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := blobs.Put(ctx, pattern(200))
	wantCode(t, err, tutti.CodeUnavailable, tutti.CodeDeadline)
	_, err = blobs.Get(ctx, tutti.DigestOf(content))
	wantCode(t, err, tutti.CodeUnavailable, tutti.CodeDeadline)
	_, err = blobs.Has(ctx, tutti.DigestOf(content))
	wantCode(t, err, tutti.CodeUnavailable, tutti.CodeDeadline)
}

func blobsSize(t *testing.T, blobs tutti.Blobs, reopen func() tutti.Blobs) {
	for _, size := range []int{0, 10, 128<<10 + 1} {
		mustPut(t, blobs, pattern(size))
		sizing, ok := reopen().(tutti.Sizing)
		if !ok {
			t.Fatalf("%T does not return the size of content", blobs)
		}
		if got, err := sizing.Size(t.Context(), tutti.DigestOf(pattern(size))); err != nil || got != int64(size) {
			t.Errorf("Size of %d bytes: %d, %v", size, got, err)
		}
		_, err := sizing.Size(t.Context(), tutti.DigestOf([]byte("never stored")))
		wantCode(t, err, tutti.CodeNotFound)
	}
}

func blobsDelete(t *testing.T, blobs tutti.Blobs, reopen func() tutti.Blobs) {
	sweeping, ok := blobs.(tutti.Sweeping)
	if !ok {
		t.Fatalf("%T cannot delete content", blobs)
	}
	sizes := []int{0, 100, 300 << 10, 5 << 20}
	var digests []tutti.Digest
	for _, size := range sizes {
		mustPut(t, blobs, pattern(size))
		digests = append(digests, tutti.DigestOf(pattern(size)))
	}
	wantListed(t, sweeping, digests...)
	for _, d := range []tutti.Digest{digests[0], digests[2], digests[2], tutti.DigestOf([]byte("never stored"))} {
		if err := sweeping.Delete(t.Context(), d); err != nil {
			t.Errorf("Delete(%s): %v", d, err)
		}
	}
	wantListed(t, sweeping, digests[1], digests[3])
	for _, d := range []tutti.Digest{digests[0], digests[2]} {
		if ok, err := blobs.Has(t.Context(), d); err != nil || ok {
			t.Errorf("Has(%s) after its end: %v, %v; want false", d, ok, err)
		}
		_, err := reopen().Get(t.Context(), d)
		wantCode(t, err, tutti.CodeNotFound)
	}
	for _, size := range sizes {
		mustPut(t, blobs, pattern(size))
		wantBlob(t, reopen(), pattern(size))
	}
	wantCode(t, sweeping.Delete(t.Context(), "sha256:>"), tutti.CodeInvalid)
}

func wantListed(t *testing.T, blobs tutti.Sweeping, want ...tutti.Digest) {
	t.Helper()
	got, err := blobs.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(want, got) {
		t.Errorf("listed %v, want %v", got, want)
	}
}
