package memory_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/storetest"
)

func TestLog(t *testing.T) {
	storetest.TestLog(t, func(*testing.T) (tutti.Log, func() tutti.Log) {
		log := memory.NewLog()
		return log, func() tutti.Log { return log }
	})
}

func TestBlobs(t *testing.T) {
	storetest.TestBlobs(t, func(*testing.T) (tutti.Blobs, func() tutti.Blobs) {
		blobs := memory.NewBlobs()
		return blobs, func() tutti.Blobs { return blobs }
	})
}
