package puppet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/wire"
)

// parentSays makes a node whose warm parent is a shell script. The script's stdin is the
// socket to the agent. The script notes each of its starts.
func parentSays(t *testing.T, script string) (w *puppet.Warm, starts func() int) {
	t.Helper()
	root := t.TempDir()
	begun := filepath.Join(root, "begun")
	for name, text := range map[string]string{"ruby": "#!/bin/bash\necho x >> " + begun + "\n" + script, "puppet": "#!/bin/sh\n"} {
		file := filepath.Join(root, "usr/bin", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w = puppet.NewWarm(root, "/launcher", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx) // returns when ctx ends
	}()
	t.Cleanup(func() {
		cancel()
		<-done // after this, the parent is gone
	})
	return w, func() int {
		raw, _ := os.ReadFile(begun)
		return strings.Count(string(raw), "x")
	}
}

// ready is the first message of a parent.
const ready = `echo '{"ready":true}' >&0` + "\n"

// TestWarmStart: a run is a child of the parent, or Start returns the reason why there is
// no child.
func TestWarmStart(t *testing.T) {
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	noted := fmt.Sprintf(`{"pid":%d,"start":1}`, os.Getpid())
	for name, tc := range map[string]struct {
		reason, script, err string
		starts              int
	}{
		"answers":   {"the child is told", ready + `read l; echo '` + noted + `' >&0; read l`, "", 1},
		"no ready":  {"Puppet cannot be loaded", `exit 1`, "did not load Puppet", 1},
		"dies":      {"nothing has begun", ready + `read l; exit 1`, "it ended", 1},
		"dies late": {"a child has begun, and nobody has heard", ready + `read l; echo '` + noted + `' > ` + pid, "", 1},
		"nonsense":  {"an answer that is none", ready + `read l; echo hello >&0; read l`, "it ended", 1},
		"refuses":   {"no child could be made", ready + `read l; echo '{"error":"no memory"}' >&0; read l`, "no memory", 1},
		"changed":   {"it has just been loaded: another one would say the same", ready + `read l; echo '{"changed":"/puppet.rb"}' >&0; read l`, "/puppet.rb", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(pid); err != nil {
				t.Fatal(err)
			}
			w, starts := parentSays(t, tc.script)
			p, err := w.Start(dir, "")
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: got %v, want an error with %q", tc.reason, err, tc.err)
			}
			if (p != nil) != (tc.err == "") {
				t.Errorf("%s: process %v", tc.reason, p)
			}
			if got := starts(); got != tc.starts {
				t.Errorf("%s: %d parents, want %d", tc.reason, got, tc.starts)
			}
		})
	}
}

// TestWarmReplaced: a parent has loaded files that have changed since. Another parent
// replaces this parent, and the run is a child of the new parent.
func TestWarmReplaced(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	w, starts := parentSays(t, ready+`
read l; echo '{"pid":7,"start":1}' >&0
if mkdir `+once+`; then read l; echo '{"changed":"/puppet.rb"}' >&0; fi; read l`)
	for range 2 {
		if p, err := w.Start(t.TempDir(), ""); err != nil || p == nil {
			t.Fatalf("no child: %v", err)
		}
	}
	if got := starts(); got != 2 {
		t.Errorf("%d parents, want 2", got)
	}
}

// TestWarmOtherRuby: if the Ruby or Puppet for a new run differs from that of the parent, a new parent replaces
// the parent.
func TestWarmOtherRuby(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(root string) error
		starts int
	}{
		"none": {"the same Ruby serves again", func(string) error { return nil }, 1},
		"ruby": {"its name leads to another release, which is beside the old one", func(root string) error {
			ruby := filepath.Join(root, "usr/bin/ruby")
			text, err := os.ReadFile(ruby)
			if err == nil {
				err = os.WriteFile(ruby+"3.3", text, 0o755)
			}
			if err == nil {
				err = os.Rename(ruby, ruby+"3.1")
			}
			if err == nil {
				err = os.Symlink("ruby3.3", ruby)
			}
			return err
		}, 2},
		"vendor": {"the vendor's package, which goes first, has come beside Debian's", func(root string) error {
			bin := filepath.Join(root, "opt/puppetlabs/puppet/bin")
			if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(root, "usr/bin"), bin)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, starts := parentSays(t, ready+`while read l; do echo '{"pid":7,"start":1}' >&0; done`)
			for i := range 2 {
				if p, err := w.Start(t.TempDir(), ""); err != nil || p == nil {
					t.Fatalf("%s: no child: %v", tc.reason, err)
				}
				if i > 0 {
					break
				}
				if err := tc.change(w.Root()); err != nil {
					t.Fatal(err)
				}
			}
			if got := starts(); got != tc.starts {
				t.Errorf("%s: %d parents, want %d", tc.reason, got, tc.starts)
			}
		})
	}
}

// TestWarmFacts: a run may use the collected facts only if it has the same code, and only one run may use them.
func TestWarmFacts(t *testing.T) {
	dir := t.TempDir()
	orders := filepath.Join(dir, "orders")
	w, _ := parentSays(t, ready+`while read -r line; do echo "$line" >> `+orders+`
case $line in *run*) echo '{"pid":7,"start":1}' >&0;; esac; done`)
	start := func(code string) {
		t.Helper()
		if _, err := w.Start(dir, code); err != nil {
			t.Fatal(err)
		}
	}
	collect := func(dir string) {
		t.Helper()
		if err := w.Collect(dir, "a"); err != nil {
			t.Fatal(err)
		}
	}
	collect("/before") // without a parent, another process collects, and no run can use its facts
	start("a")
	collect("/first")
	start("a")
	collect("/second")
	start("b")
	start("")
	raw, err := os.ReadFile(orders)
	if err != nil {
		t.Fatal(err)
	}
	run := func(facts string) string { return `{"do":"run","dir":"` + dir + `"` + facts + "}\n" }
	want := run("") + `{"do":"facts","dir":"/first"}` + "\n" + run(`,"facts_for":"/first","facts_age":60`) +
		`{"do":"facts","dir":"/second"}` + "\n" + run("") + run("")
	if string(raw) != want {
		t.Errorf("orders\n%swant\n%s", raw, want)
	}
}

// TestWarmTurn: when a node begins to wait for its turn, the parent collects facts once,
// with the order of the previous run. The parent does not collect if it already has
// recent facts.
func TestWarmTurn(t *testing.T) {
	dir := t.TempDir()
	orders := filepath.Join(dir, "orders")
	w, starts := parentSays(t, ready+`while read -r line; do echo "$line" >> `+orders+`
case $line in *run*) echo '{"pid":7,"start":1}' >&0;; esac; done`)
	said := ""
	for _, step := range []struct {
		reason string
		do     func()
		expect wire.Expectation
		says   string
	}{
		{"a turn, and nothing ran before", func() {}, wire.ExpectTurn, ""},
		{"no turn", func() {
			if err := w.Collect("/first", "a"); err != nil {
				t.Fatal(err)
			}
		}, wire.ExpectNothing, `{"do":"facts","dir":"/first"}`},
		{"a turn, and there are facts", func() {}, wire.ExpectTurn, ""},
		{"it still waits", func() { w.Older(time.Hour) }, wire.ExpectTurn, ""},
		{"a fleet that reacts", func() {}, wire.ExpectChange, ""},
		{"a turn, and the facts are old", func() {}, wire.ExpectTurn, `{"do":"facts","dir":"/first"}`},
	} {
		step.do()
		w.Ready(step.expect)
		if step.says != "" {
			said += step.says + "\n"
		}
		if _, err := w.Start(dir, ""); err != nil { // the parent answers after it has handled the earlier messages
			t.Fatal(err)
		}
		said += `{"do":"run","dir":"` + dir + `"}` + "\n"
		raw, err := os.ReadFile(orders)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != said {
			t.Fatalf("%s: orders\n%swant\n%s", step.reason, raw, said)
		}
	}
	if got := starts(); got != 1 {
		t.Errorf("%d parents, want 1", got)
	}
	if w.Memory() == 0 {
		t.Error("the parent has no memory")
	}
	if w.Stop(); w.Memory() != 0 {
		t.Error("a parent that has ended has memory")
	}
}

// TestWarmTurnedOff: if the idle time is 0, there is no parent. If a parent did not start, Warm
// waits for a while before it starts another one.
func TestWarmTurnedOff(t *testing.T) {
	if p, err := puppet.NewWarm("/", "/launcher", 0).Start(t.TempDir(), ""); p != nil || err != nil {
		t.Errorf("turned off: %v, %v", p, err)
	}
	w, starts := parentSays(t, `exit 1`)
	for range 3 {
		if _, err := w.Start(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "did not load Puppet") {
			t.Fatalf("without a parent: %v", err)
		}
	}
	if got := starts(); got != 1 {
		t.Errorf("%d parents were tried, want 1", got)
	}
}
