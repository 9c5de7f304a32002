package hostile

import (
	"bufio"
	"errors"
	"os"
	"testing"
)

// Fill writes a file of about size bytes. The file has the beginning, then the piece again and again, then the end.
// Any goroutine may call Fill, not only the test's goroutine.
func Fill(t *testing.T, path string, size int, begin, piece, end string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	out := bufio.NewWriter(file)
	_, _ = out.WriteString(begin) // Flush returns an error of this write
	for i := 0; i < size; i += len(piece) {
		_, _ = out.WriteString(piece)
	}
	_, _ = out.WriteString(end)
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		t.Error(err)
	}
}
