package retain_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/retain"
)

// FuzzSnapshot checks that reading a stored snapshot returns an error with a code, or the
// entries in the order of the snapshot.
//
// FuzzSnapshot has found one mistake, empty-entry: an entry without an event was accepted.
func FuzzSnapshot(f *testing.F) {
	lines := `{"tutti":"snapshot","v":1,"through":9,"link":"` + string(tutti.DigestOf(nil)) + `"}
{"seq":1,"link":"a","event":{"v":1,"kind":"node.removed","at":"2026-01-02T03:04:05Z","by":"x","data":{"node":"a"}}}
{"seq":7,"link":"b","event":{"v":1,"kind":"token.revoked","at":"2026-01-02T03:04:05Z","by":"x","data":{"token":"a"}}}
`
	for seed := range uint64(20) {
		f.Add([]byte(lines), seed, uint64(0), -1)
	}
	f.Add([]byte(lines), uint64(0), uint64(3), 40)
	f.Fuzz(func(t *testing.T, lines []byte, seed, after uint64, cut int) {
		parts := bytes.SplitAfter(lines, []byte("\n"))
		if i := int(seed % uint64(len(parts))); bytes.HasSuffix(parts[i], []byte("\n")) {
			parts[i] = append(hostile.Mangle(bytes.TrimSpace(parts[i]), seed), '\n')
		}
		var stored bytes.Buffer
		zip := gzip.NewWriter(&stored)
		if _, err := zip.Write(bytes.Join(parts, nil)); err != nil || zip.Close() != nil {
			t.Fatal(err)
		}
		raw := stored.Bytes()
		if cut >= 0 && cut < len(raw) {
			raw = raw[:cut]
		}
		taken := tutti.SnapshotTaken{Through: 9, State: tutti.DigestOf(raw)}
		for entry, err := range retain.Entries(taken, raw, after) {
			if err != nil {
				if code := tutti.CodeOf(err); code != tutti.CodeInternal && code != tutti.CodeDamaged || len(err.Error()) > tutti.MaxErrorText {
					t.Errorf("code %q of %.200v", code, err)
				}
				return
			}
			if entry.Seq <= after || !json.Valid(entry.Raw) {
				t.Errorf("entry %d after %d: %s", entry.Seq, after, entry.Raw)
			}
			var e tutti.Event
			if json.Unmarshal(entry.Raw, &e) == nil {
				ledger := retain.New()
				ledger.Add(e)
				_ = ledger.Needs(e)
			}
		}
		if cut >= 0 && cut < stored.Len() {
			t.Error("a snapshot that is cut was read to its end")
		}
	})
}
