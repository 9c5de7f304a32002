package fleet_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

var update = flag.Bool("update", false, "write the golden files")

// TestParseGolden reads every testdata/*.yaml. A file with a .err file must be refused with exactly these
// errors. For every other file, the golden files contain the compiled fleet, and for each plan the text
// that people see.
func TestParseGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fleet files in testdata: %v", err)
	}
	for _, file := range files {
		if filepath.Base(file) == "defences.yaml" {
			continue // this file contains rows of internal/defence
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			base := strings.TrimSuffix(file, ".yaml")
			got, err := fleet.Parse(filepath.Base(file), source)
			if strings.HasPrefix(filepath.Base(file), "bad-") {
				if code := tutti.CodeOf(err); code != tutti.CodeInvalid {
					t.Fatalf("got %v with code %q, want a refusal with code invalid", err, code)
				}
				compare(t, base+".err", err.Error()+"\n")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, base+".golden.json", string(encoded)+"\n")
			compare(t, base+".golden.txt", rendered(t, got))
		})
	}
}

// The function `rendered` returns all plans as text, with some nodes for the groups of join tokens.
func rendered(t *testing.T, f tutti.Fleet) string {
	t.Helper()
	enrolled := map[tutti.GroupName][]tutti.NodeName{}
	for _, g := range f.Groups {
		enrolled[g.Name] = []tutti.NodeName{"joined-02.example.net", "joined-01.example.net", "joined-02.example.net"}
	}
	var out strings.Builder
	for _, p := range f.Plans {
		targets, err := fleet.Resolve(f, enrolled, p)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(fleet.Render(p, targets) + "\n")
	}
	return out.String()
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", file, diff)
	}
}
