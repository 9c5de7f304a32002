package collect

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/doctor"
)

// Doctor reports a refused result until the server has accepted a later result.
func TestARefusedResultIsNamed(t *testing.T) {
	dir := t.TempDir()
	sent := func(run, why string, at time.Time) {
		t.Helper()
		text := fmt.Sprintf(`{"error":%q}`, why)
		path := filepath.Join(dir, "runs", run)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"sent": fmt.Sprintf("%s\t%08x\n", text, crc32.ChecksumIEEE([]byte(text))), "result.json": ""} {
			if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(filepath.Join(path, "sent"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	named := func() []tutti.RunID {
		var n doctor.Node
		runFacts(dir, &n)
		return n.Refused
	}
	day := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	sent("a", "", day)
	sent("b", "a mistake", day.Add(time.Hour))
	if diff := cmp.Diff([]tutti.RunID{"b"}, named()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	sent("c", "", day.Add(2*time.Hour))
	if got := named(); got != nil {
		t.Errorf("%v after a good run, want none", got)
	}
}
