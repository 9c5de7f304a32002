package natsbus_test

import (
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
	storetest.TestLog(t, func(t *testing.T) (tutti.Log, func() tutti.Log) {
		bus := bustest.Start(t)
		return openLog(t, bus), func() tutti.Log { return openLog(t, bus) }
	})
}

func TestBlobs(t *testing.T) {
	storetest.TestBlobs(t, func(t *testing.T) (tutti.Blobs, func() tutti.Blobs) {
		bus := bustest.Start(t)
		return openBlobs(t, bus), func() tutti.Blobs { return openBlobs(t, bus) }
	})
}
