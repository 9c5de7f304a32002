package natsbus_test

import (
	"cmp"
	"fmt"
	"sync"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/storetest"
)

func openBlobs(t *testing.T, bus *bustest.Bus) *natsbus.Blobs {
	t.Helper()
	blobs, err := natsbus.OpenBlobs(t.Context(), bus.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	return blobs
}

func openLog(t *testing.T, bus *bustest.Bus) *natsbus.Log {
	t.Helper()
	log, err := natsbus.OpenLog(t.Context(), bus.Log(t), natsbus.LogOptions{Blobs: openBlobs(t, bus)})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestLog(t *testing.T) {
	t.Parallel()
	storetest.TestLog(t, func(t *testing.T) (tutti.Log, func() tutti.Log) {
		bus := bustest.Start(t)
		return openLog(t, bus), func() tutti.Log { return openLog(t, bus) }
	})
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	storetest.TestBlobs(t, func(t *testing.T) (tutti.Blobs, func() tutti.Blobs) {
		bus := bustest.Start(t)
		return openBlobs(t, bus), func() tutti.Blobs { return openBlobs(t, bus) }
	})
}

// Blobs that are stored at the same time share an fsync. With an fsync for each blob, a
// thousand runs that end together would wait for thousands of fsyncs.
func TestBlobsPutAtOnceGoToDiskTogether(t *testing.T) {
	bus := bustest.StartSync(t)
	blobs := openBlobs(t, bus)
	const count = 100
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			if _, err := blobs.Put(t.Context(), fmt.Appendf(nil, "content %d", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	js := bus.JetStream(t)
	stream, err := js.Stream(t.Context(), "TUTTI_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]bool{}
	for seq := range uint64(count) {
		msg, err := stream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		writes[cmp.Or(msg.Header.Get("Nats-Batch-Id"), msg.Subject)] = true
	}
	if len(writes) > count/4 {
		t.Errorf("%d blobs stored at once in %d writes, want few", count, len(writes))
	}
}
