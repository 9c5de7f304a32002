package natsbus_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

// blocksOf returns the total size of the files that contain a stream's
// messages.
func blocksOf(t *testing.T, dir, stream string) int64 {
	t.Helper()
	var total int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".blk" || filepath.Base(filepath.Dir(filepath.Dir(path))) != stream {
			return err
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// content returns the content of blob i. The blobs have many different sizes and cannot be
// compressed. All blobs together have some MB.
func content(i int) []byte {
	out := make([]byte, 1000+(i*7919)%200_000)
	state := uint64(i + 1)
	for at := 0; at+8 <= len(out); at += 8 {
		state = state*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(out[at:], state)
	}
	return out
}

func TestTheDiskShrinksWithItsContent(t *testing.T) {
	t.Parallel()
	var dir string
	bus := bustest.StartWith(t, func(o *embed.Options) { dir, o.SyncEvery = o.Dir, 20*time.Millisecond })
	blobs := openBlobs(t, bus)
	const count = 500
	var kept int64
	for i := range count {
		c := content(i)
		if i%10 == 0 {
			kept += int64(len(c))
		}
		if _, err := blobs.Put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	before := blocksOf(t, dir, "TUTTI_BLOBS")
	for i := range count {
		if i%10 == 0 {
			continue
		}
		if err := blobs.Delete(t.Context(), tutti.DigestOf(content(i))); err != nil {
			t.Fatal(err)
		}
	}
	// The goal is twice the remaining content, plus one block that is being
	// written.
	goal := 2*kept + 8<<20 + 1<<20
	if before < 2*goal {
		t.Fatalf("%d bytes on disk before: too few to show anything, the goal is %d", before, goal)
	}
	ctx := within(t)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for now := before; now > goal; now = blocksOf(t, dir, "TUTTI_BLOBS") {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%d bytes on disk before, %d now; %d bytes of content are left", before, now, kept)
		}
	}
	for i := 0; i < count; i += 10 {
		if got, err := blobs.Get(t.Context(), tutti.DigestOf(content(i))); err != nil || len(got) != len(content(i)) {
			t.Fatalf("blob %d after its block was written anew: %d bytes, %v", i, len(got), err)
		}
	}
}

// The chunks of a Put that was cut off do not count as content. List returns
// their digest, and Delete removes them.
func TestHalfABlobIsListedAndRemoved(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	blobs := openBlobs(t, bus)
	js := bus.JetStream(t)
	whole := content(25)
	digest := tutti.DigestOf(whole)
	msg := nats.NewMsg("chunk." + digest.Hex() + ".0")
	msg.Data = whole[:100<<10]
	if _, err := js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	listed, err := blobs.List(t.Context())
	if err != nil || len(listed) != 1 || listed[0] != digest {
		t.Fatalf("listed %v, %v; want %s", listed, err, digest)
	}
	if err := blobs.Delete(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	if listed, err := blobs.List(t.Context()); err != nil || len(listed) != 0 {
		t.Errorf("listed %v, %v; want nothing", listed, err)
	}
}
