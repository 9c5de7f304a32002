package natsbus_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
)

// crashDir is an environment variable. It is set only in the process that the test kills.
const crashDir = "TUTTI_TEST_CRASH_DIR"

const crashBatch = 40

// TestCrashChild is not a test. TestCrashChild appends batches until it is
// killed, and prints which batches were acknowledged.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("runs in a process of its own, see TestKilledWhileAppending")
	}
	log := openLog(t, bustest.StartSyncIn(t, dir))
	last := uint64(0)
	for e, err := range log.Read(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		last = e.Seq
	}
	for {
		events := make([]tutti.Event, crashBatch)
		for i := range events {
			events[i] = setValue(fmt.Sprint(i))
		}
		var err error
		if last, err = log.Append(t.Context(), last, events); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("acknowledged %d\n", last)
	}
}

// TestKilledWhileAppending runs a process with bus and writer, and kills it in
// the middle of its appends. The test kills the process several times on one
// log. Afterwards the log has all acknowledged events, and has each batch either
// completely or not at all.
func TestKilledWhileAppending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acknowledged := uint64(0)
	for round := range 6 {
		acknowledged = killAfter(t, dir, 1+5*round)
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			next, last := 0, uint64(0)
			for e, err := range openLog(t, bustest.StartSyncIn(t, dir)).Read(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Body.ID() != fmt.Sprint(next) {
					t.Fatalf("event %d is part %s of its batch, want %d", e.Seq, e.Body.ID(), next)
				}
				next, last = (next+1)%crashBatch, e.Seq
			}
			if next != 0 {
				t.Errorf("the last batch has %d events of %d", next, crashBatch)
			}
			if last < acknowledged {
				t.Errorf("the log ends at %d, acknowledged was %d", last, acknowledged)
			}
		})
	}
	if acknowledged == 0 {
		t.Error("nothing was ever acknowledged: the test proves nothing")
	}
}

// killAfter runs the child, kills it after the given number of acknowledgements,
// and returns the last acknowledged sequence.
func killAfter(t *testing.T, dir string, acks int) uint64 {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$")
	child.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var last uint64
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "acknowledged ")
		if !ok {
			t.Logf("child: %s", lines.Text())
			continue
		}
		if last, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		if acks--; acks == 0 {
			// The child has already begun its next append. It may acknowledge more appends before
			// it dies, and the test reads these acknowledgements, too.
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || acks > 0 {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return last
}
