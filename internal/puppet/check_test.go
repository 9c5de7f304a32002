package puppet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// TestCheck checks how the output of puppet-tutti --check is read. A fake Ruby prints it; the specs of the module run the
// real one.
func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   []tutti.CodeProblem
		err    string
	}{
		"problems": {`test -f "$1" -a -f "$(dirname "$1")/../metadata.json" -a "$2" = --check -a -d "$3" || exit 3
printf '%s\n' '{"level":"error","file":"manifests/site.pp","line":3,"message":"no"}' '{"level":"warning","file":"x","line":null,"message":"maybe"}'`,
			[]tutti.CodeProblem{{Level: "error", File: "manifests/site.pp", Line: 3, Message: "no"}, {Level: "warning", File: "x", Message: "maybe"}}, ""},
		"none":             {"", []tutti.CodeProblem{}, ""},
		"it fails":         {"echo 'cannot load such file -- puppet' >&2; echo more >&2; exit 1", nil, "failed: cannot load such file -- puppet"},
		"it says nothing":  {"exit 1", nil, "failed: exit status 1"},
		"no problem":       {"echo hello", nil, `says "hello", which is not a problem`},
		"an unknown level": {`echo '{"level":"fatal"}'`, nil, "which is not a problem"},
	} {
		t.Run(name, func(t *testing.T) {
			ruby := filepath.Join(t.TempDir(), "ruby")
			if err := os.WriteFile(ruby, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			got, err := Installation{Ruby: ruby}.Check(t.Context(), t.TempDir(), t.TempDir())
			if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q; problems: -want +got\n%s", err, tc.err, diff)
			}
		})
	}
}
