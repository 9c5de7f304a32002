package app

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// If the server refused the result of a local run, the command shows the
// reason.
func TestALocalRunThatWasRefusedSaysWhy(t *testing.T) {
	dir := t.TempDir()
	text := `{"error":"a mistake"}`
	path := filepath.Join(dir, "runs", "b")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"sent": fmt.Sprintf("%s\t%08x\n", text, crc32.ChecksumIEEE([]byte(text))), "result.json": ""} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := localRun(dir, "b"); err != nil || r.Refused != "a mistake" {
		t.Errorf("%+v, %v", r, err)
	}
}
