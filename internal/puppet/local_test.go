package puppet

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

const lastRun = 1795287262

// local returns a Puppet below a new root, an hour after its last run.
func local(t *testing.T) (Local, Config) {
	t.Helper()
	l := Local{Root: rootWith(t, 1, ""), Now: func() time.Time { return time.Unix(lastRun+3600, 0) }}
	c, err := ReadConfig(l.Root)
	if err != nil {
		t.Fatal(err)
	}
	return l, c
}

// process starts a process with this name, which ends with the test.
func process(t *testing.T, name string) int {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(sleep, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

const summary = "---\nversion: {config: 7, puppet: 7.23.0}\ntime: {config_retrieval: 0.25, total: 2.5, last_run: 1795287262}\n" +
	"resources: {changed: 2, corrective_change: 1, failed: 1, failed_to_restart: 1, out_of_sync: 6, total: 16}\n"

func TestStatus(t *testing.T) {
	puppet, other := process(t, "puppet-agent"), process(t, "nginx")
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa
	for _, tc := range []struct {
		reason                   string
		disabled, lock, pidfile  string // content of the file; empty: no file
		want                     string
		applying, idling, daemon bool
		message                  string
	}{
		{"nothing is there", "", "", "", "stopped", false, false, false, ""},
		{"a run", "", pid(puppet), "", "applying a catalog", true, false, false, ""},
		{"a daemon that waits", "", "", pid(puppet), "idling", false, true, true, ""},
		{"a daemon that runs", "", pid(puppet), pid(puppet), "applying a catalog", true, false, true, ""},
		{"the lock of a process that has ended", "", pid(ended.Process.Pid), "", "stopped", false, false, false, ""},
		{"a pid that another process has now is no run", "", pid(other), pid(other), "stopped", false, false, false, ""},
		{"an empty lock", "", "\n", "", "stopped", false, false, false, ""},
		{"no number", "", "puppet", "", "stopped", false, false, false, ""},
		{"every process", "", "-1", "0", "stopped", false, false, false, ""},
		{"disabled comes first", `{"disabled_message":"new disk"}`, pid(puppet), "", "disabled", true, false, false, "new disk"},
		{"disabled by something else than Puppet is disabled", "x", "", "", "disabled", false, false, false, "reason not known"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l, c := local(t)
			for file, content := range map[string]string{c.DisabledLock: tc.disabled, c.RunLock: tc.lock, c.PIDFile: tc.pidfile, c.LastRun: summary} {
				if content != "" {
					write(t, file, content, 0o644)
				}
			}
			got, err := l.Status()
			if err != nil || !strings.Contains(got.DisableMessage, tc.message) {
				t.Fatalf("%+v, %v", got, err)
			}
			got.DisableMessage = ""
			want := tutti.PuppetStatus{
				Status: tc.want, Enabled: tc.disabled == "", Applying: tc.applying, Idling: tc.idling, DaemonPresent: tc.daemon,
				LastRun: lastRun, SinceLastRun: 3600, Message: "Currently " + tc.want + "; last completed run 1h0m0s ago",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if tc.lock != "" {
				if _, err := os.Stat(c.RunLock); err != nil {
					t.Errorf("the lock is gone: %v", err)
				}
			}
		})
	}
}

// TestDisabling: the first message stays in Puppet's own file. Enable and Disable also
// work twice in a row.
func TestDisabling(t *testing.T) {
	l, c := local(t)
	for _, step := range []struct {
		do      func() (bool, error)
		changed bool
		message string // empty if Puppet is enabled
	}{
		{l.Enable, false, ""},
		{func() (bool, error) { return l.Disable(`a "disk"`, false) }, true, `a "disk"`},
		{func() (bool, error) { return l.Disable("other", false) }, false, `a "disk"`},
		{func() (bool, error) { return l.Disable("other", true) }, true, "other"},
		{l.Enable, true, ""},
		{l.Enable, false, ""},
	} {
		changed, err := step.do()
		if err != nil || changed != step.changed {
			t.Errorf("changed %t, %v; want %t", changed, err, step.changed)
		}
		raw, _ := os.ReadFile(c.DisabledLock)
		var lock map[string]string
		_ = json.Unmarshal(raw, &lock)
		if lock["disabled_message"] != step.message {
			t.Errorf("the file says %q, want %q", raw, step.message)
		}
	}
}

func TestSummary(t *testing.T) {
	l, c := local(t)
	if _, err := l.Summary(); tutti.CodeOf(err) != tutti.CodeNotFound {
		t.Errorf("no run: %v", err)
	}
	write(t, c.Resources, "file[/etc/x y]\nfile[/etc/z]\nservice[a[b]]\n", 0o640)
	write(t, c.LastRun, summary, 0o640)
	got, err := l.Summary()
	want := tutti.RunSummary{
		TotalResources: 16, OutOfSyncResources: 6, FailedResources: 2, CorrectedResources: 1, ChangedResources: 2, ConfigRetrieval: 0.25, TotalTime: 2.5,
		LastRun: lastRun, SinceLastRun: 3600, ConfigVersion: "7", TypeDistribution: map[string]int{"file": 2, "service": 1},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	// When a catalog does not compile, Puppet's summary has one of these two forms. A
	// result with "0 failed" would be wrong.
	for _, text := range []string{"version: {config: , puppet: 7}\ntime: {last_run: 1795287262}\n", "time: {last_run: 1795287262}\nresources: {failed: 0, total: 0}\n"} {
		write(t, c.LastRun, text, 0o640)
		got, err := l.Summary()
		if err != nil || !got.Failed || got.LastRun != lastRun || !strings.Contains(got.Message, "failed before it applied") {
			t.Errorf("%q: %+v, %v; want a failed run", text, got, err)
		}
	}
	for _, text := range []string{"]", "resources: 3\n", strings.Repeat("#", maxSummary+1)} {
		write(t, c.LastRun, text, 0o640)
		if got, err := l.Summary(); tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Errorf("%.20q: %+v, %v", text, got, err)
		}
	}
}

// TestResource: Resource runs Puppet without a shell, changes nothing, and bounds the
// output.
func TestResource(t *testing.T) {
	l, _ := local(t)
	said := filepath.Join(t.TempDir(), "said")
	ruby := func(script string) { write(t, filepath.Join(l.Root, places[1].Ruby), "#!/bin/sh\n"+script, 0o755) }
	ruby(`echo "$@" > ` + said + `; printf 'user:\n  root:\n    uid: 0\n'`)
	got, err := l.Resource(t.Context(), "User", "root; rm -rf /")
	if err != nil || string(got) != `{"user":{"root":{"uid":0}}}` {
		t.Errorf("%s, %v", got, err)
	}
	raw, _ := os.ReadFile(said)
	if want := l.Root + "/usr/bin/puppet resource --to_yaml user root; rm -rf /\n"; string(raw) != want {
		t.Errorf("Puppet was called with %q, want %q", raw, want)
	}
	for _, tc := range []struct{ script, kind, title, says string }{
		{"echo Error: no such type >&2; echo >&2; exit 1", "nothing", "", "no such type"},
		{"exec yes", "user", "", "name one"},
		{"exit 0", "user", "--debug", "no '-' first"},
		{"exit 0", "../x", "", "a name like"},
		{"exit 0", "user", "a\nb", "no control characters"},
	} {
		ruby(strings.Replace(tc.script, "exec yes", "yes | head -c 200000", 1))
		if got, err := l.Resource(t.Context(), tc.kind, tc.title); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s %q: %s, %v; want %q", tc.kind, tc.title, got, err, tc.says)
		}
	}
}

func TestCertname(t *testing.T) {
	const ask = "#!/bin/sh\n[ \"$2 $3 $4 $5 $6\" = 'config print certname --section agent' ] && echo db-01.example.com\n"
	for _, tc := range []struct {
		reason, conf, ruby, want string
		configured               bool
	}{
		{"Puppet makes a name of the host's", "[main]\ncertname_x = y\n", ask, "db-01.example.com", false},
		{"puppet.conf says one, and Puppet need not be started", "[main]\ncertname = db\n", "#!/bin/sh\nexit 1\n", "db", true},
		{"the section of puppet agent", "[agent]\ncertname = db\n[main]\ncertname = web\n", ask, "db", true},
	} {
		l := Local{Root: rootWith(t, 1, tc.conf)}
		write(t, filepath.Join(l.Root, places[1].Ruby), tc.ruby, 0o755)
		got, configured, err := l.Certname(t.Context())
		if err != nil || got != tc.want || configured != tc.configured {
			t.Errorf("%s: %q, %t, %v; want %q", tc.reason, got, configured, err, tc.want)
		}
	}
	if got, _, err := (Local{Root: t.TempDir()}).Certname(t.Context()); tutti.CodeOf(err) != tutti.CodeNotFound {
		t.Errorf("without a Puppet: %q, %v", got, err)
	}
}

func TestClasses(t *testing.T) {
	l, c := local(t)
	if got, known := l.Classes(); known {
		t.Errorf("classes of no run: %v", got)
	}
	write(t, c.Classes, "settings\nrole::db\n", 0o640)
	if got, known := l.Classes(); !known || !cmp.Equal(got, []string{"settings", "role::db"}) {
		t.Errorf("%v, %t", got, known)
	}
}
