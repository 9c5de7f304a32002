package natsbus_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
)

// TestAnAppendWaitsForFiles checks that an append waits while no file can be opened, and that the
// log stores no part of the append. Later the log accepts events again.
func TestAnAppendWaitsForFiles(t *testing.T) { // not parallel, because the limit applies to the whole process
	bus := bustest.Start(t)
	log := openLog(t, bus)
	if _, err := log.Append(t.Context(), 0, []tutti.Event{setValue("a"), setValue("b")}); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	allow := func(files uint64) {
		t.Helper()
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer allow(limit.Cur)
	allow(3)
	if f, err := os.Open(os.DevNull); err == nil {
		f.Close()
		t.Fatal("a file could be opened")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := log.Append(ctx, 2, []tutti.Event{setValue("c"), setValue("d")}); tutti.CodeOf(err) != tutti.CodeDeadline {
		t.Errorf("without files: %v, want that it waits", err)
	}
	allow(limit.Cur)
	if seq, err := log.Append(t.Context(), 2, []tutti.Event{setValue("e"), setValue("f")}); seq != 4 || err != nil {
		t.Errorf("with files again: %d, %v", seq, err)
	}
}
