package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const aloneEnv = "TUTTI_TEST_ALONE"

// Alone runs the calling test again in its own process, which may use at most this much memory. Alone
// reports whether the present process is the new one. If Alone returns false, the caller must return.
// The new process has no race detector, because the race detector multiplies the memory of a program.
func Alone(t *testing.T, most int64) bool {
	t.Helper()
	if os.Getenv(aloneEnv) == t.Name() {
		t.Cleanup(func() {
			peak, err := peak()
			if err != nil || peak > most {
				t.Errorf("%d MiB in memory at most, %v; want %d MiB", peak>>20, err, most>>20)
			}
			fmt.Printf("%d MiB in memory at most\n", peak>>20)
		})
		return true
	}
	program := os.Args[0]
	if raced {
		program = filepath.Join(t.TempDir(), "alone.test")
		if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
			t.Fatalf("build the test without the race detector: %v\n%s", err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneEnv+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// The function `peak` returns the largest memory that this process has used, in bytes (VmHWM, proc_pid_status(5)).
func peak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	return kib << 10, err
}
