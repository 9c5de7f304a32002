package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/doctor"
)

func TestSlowFacts(t *testing.T) {
	const record = `{"slow":{%s},"conf":"/f.conf"}`
	for _, tc := range []struct {
		reason string
		runs   []string // the slow facts of each run, the last run first
		want   []doctor.Fact
	}{
		{"in each of the last runs, the most first, at their best",
			[]string{`"a":0.3,"b":2`, `"b":1.5,"a":0.25`, `"a":0.5,"b":1.6`, ``},
			[]doctor.Fact{{Name: "b", Cost: 1500 * time.Millisecond}, {Name: "a", Cost: 250 * time.Millisecond}}},
		{"not in each", []string{`"a":0.3`, ``, `"a":0.3`}, nil},
		{"remembered since", []string{``, `"a":0.3`, `"a":0.3`, `"a":0.3`}, nil},
		{"too few runs to tell", []string{`"a":0.3`, `"a":0.3`}, nil},
		{"one that is not whole", []string{`"a":0.3`, `"a":`, `"a":0.3`}, nil},
	} {
		dir := t.TempDir()
		for i, slow := range tc.runs {
			run := filepath.Join(dir, "runs", fmt.Sprint(i))
			file := filepath.Join(run, "fact-use.json")
			if err := os.MkdirAll(run, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, fmt.Appendf(nil, record, slow), 0o600); err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(-time.Duration(i) * time.Minute)
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
		got, conf := slowFacts(dir)
		if diff := cmp.Diff(tc.want, got); diff != "" || len(got) > 0 && conf != "/f.conf" {
			t.Errorf("%s: in %s, -want +got\n%s", tc.reason, conf, diff)
		}
	}
}
