package app

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestTheReserveOfFiles opens files up to the limit. While `wait` waits, the process can open more files. The method
// `wait` returns when enough files are closed, and then the limit is low again.
func TestTheReserveOfFiles(t *testing.T) { // not parallel, because the limit applies to the whole process
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	r, err := reserveFiles(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	again, err := reserveFiles(r.logger)
	if err != nil {
		t.Fatal(err)
	}
	if r.low != again.low || r.low.Cur >= r.low.Max || r.low.Cur < r.low.Max/8*7 {
		t.Fatalf("the soft limits are %+v and %+v", r.low, again.low)
	}
	// a test cannot open as many files as the process may open, so the test takes lower limits
	r.low.Cur, r.high.Cur = uint64(openFiles()+64), uint64(openFiles()+128)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r.low); err != nil {
		t.Fatal(err)
	}
	var open []*os.File
	closeAll := sync.OnceFunc(func() {
		for _, f := range open {
			f.Close()
		}
	})
	defer closeAll()
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		open = append(open, f)
	}
	patient, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	var waits sync.WaitGroup
	waits.Go(func() { r.wait(patient) })
	for {
		if f, err := os.Open(os.DevNull); err == nil { // from the reserve
			open = append(open, f)
			break
		}
		if patient.Err() != nil {
			t.Fatal("the reserve was not opened")
		}
	}
	closeAll()
	waits.Wait()
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	if now.Cur != r.low.Cur {
		t.Errorf("the limit is %d after the wait, want %d", now.Cur, r.low.Cur)
	}
	end()
	r.low.Cur = 1
	r.wait(patient) // returns although more files than this are open
}
