package puppet

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// TestServed checks how the output of puppet-tutti --served is read. A fake Ruby prints it; the specs of the module run the
// real one, and a test in e2e the real Puppet Server.
func TestServed(t *testing.T) {
	good := func(n string) string { return `echo '{"node":"` + n + `","catalog":{"of":"` + n + `"}}'` }
	// The processes answer to what their input says, in the order of the nodes.
	const first = `read -r in; case "$in" in *'"a"'*) `
	for name, tc := range map[string]struct {
		script string
		want   map[tutti.NodeName]string
		err    string
	}{
		"all":                  {good("a") + "\n" + `echo '{"node":"b","failed":"no"}'` + "\n" + good("c"), map[tutti.NodeName]string{"a": `{"of":"a"}`, "b": "failed: no", "c": `{"of":"c"}`}, ""},
		"one ends the process": {first + good("a") + ";; *) " + good("c") + ";; esac; echo gone >&2; exit 3", map[tutti.NodeName]string{"a": `{"of":"a"}`, "b": "failed: the compile ended the whole process: gone", "c": `{"of":"c"}`}, ""},
		"it refuses":           {"echo 'no environment x' >&2; exit 86", nil, "no environment x"},
		"another node":         {good("z"), nil, "says"},
		"no JSON":              {"echo hello", nil, `says "hello"`},
		"both":                 {`echo '{"node":"a","catalog":{},"failed":"no"}'`, nil, "says"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ruby := filepath.Join(dir, "ruby")
			if err := os.WriteFile(ruby, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			var got map[tutti.NodeName]string
			err := serving{ruby: ruby, dir: dir, environment: "x", key: "k"}.all(t.Context(), []tutti.NodeName{"a", "b", "c"}, func(n tutti.NodeName, catalog json.RawMessage, failed string) error {
				if got == nil {
					got = map[tutti.NodeName]string{}
				}
				if got[n] = string(catalog); failed != "" {
					got[n] = "failed: " + failed
				}
				return nil
			})
			if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q; -want +got\n%s", err, tc.err, diff)
			}
		})
	}
}

// TestServedEnds checks that nothing goes on when nobody waits any more.
func TestServedEnds(t *testing.T) {
	dir := t.TempDir()
	ruby, fifo := filepath.Join(dir, "ruby"), filepath.Join(dir, "begun")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	const lasts = "612.75"
	if err := os.WriteFile(ruby, []byte("#!/bin/sh\nsleep "+lasts+" &\n: > "+fifo+"\nwait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		_, _ = os.ReadFile(fifo) // waits until the process has begun
	}()
	err := serving{ruby: ruby, dir: dir}.all(ctx, []tutti.NodeName{"a"}, nil)
	if tutti.CodeOf(err) != tutti.CodeDeadline {
		t.Errorf("error %v", err)
	}
	found := 0
	if err := eachProcess(func(_ int, argv []string) bool {
		if len(argv) == 2 && argv[0] == "sleep" && argv[1] == lasts {
			found++
		}
		return true
	}); err != nil || found > 0 {
		t.Errorf("%d processes go on, %v", found, err)
	}
}
