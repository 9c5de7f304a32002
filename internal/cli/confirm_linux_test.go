package cli

import (
	"bytes"
	"os"
	"testing"
)

// TestATerminalIsSeen checks that isTerminal recognizes a terminal, even inside a visibleWriter. Standard error
// of all commands is a visibleWriter.
func TestATerminalIsSeen(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tc := range []struct {
		reason string
		stream any
		want   bool
	}{
		{"a terminal", terminal, true},
		{"a terminal as standard error", &visibleWriter{file: terminal}, true},
		{"a file", null, false},
		{"a file as standard error", &visibleWriter{file: null}, false},
		{"a buffer", &bytes.Buffer{}, false},
	} {
		if got := isTerminal(tc.stream); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.reason, got, tc.want)
		}
	}
}
