package hostile

import (
	"bufio"
	"errors"
	"os"
	"testing"
)

// Fill writes a file of about so many bytes: what begins it, a piece again and again, what ends it. It may be called
// beside the test's own goroutine.
func Fill(t *testing.T, path string, size int, begin, piece, end string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	out := bufio.NewWriter(file)
	_, _ = out.WriteString(begin) // Flush says what went wrong
	for i := 0; i < size; i += len(piece) {
		_, _ = out.WriteString(piece)
	}
	_, _ = out.WriteString(end)
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		t.Error(err)
	}
}
