package puppet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/puppet"
)

// If an interrupted run has left out a refresh, Puppet never does the refresh. In its
// next run, Puppet finds no change that would cause the refresh.
func TestLostRefreshes(t *testing.T) {
	const (
		begins = `{"event":"start","resource":"File[/c]","notifies":["Exec[a]","Service[b]"]}` + "\n"
		became = `{"event":"done","resource":"File[/c]","changed":true}` + "\n"
		same   = `{"event":"done","resource":"File[/c]","changed":false}` + "\n"
		aBegan = `{"event":"start","resource":"Exec[a]"}` + "\n"
		aEnded = `{"event":"done","resource":"Exec[a]","changed":true}` + "\n"
		bEnded = `{"event":"done","resource":"Service[b]","skipped":true}` + "\n"
		apply  = `{"phase":"gate","verdict":"go"}` + "\n" + `{"phase":"apply"}` + "\n"
		ended  = `{"phase":"done","exit":1,"error":{"class":"SignalException","message":"SIGTERM"}}` + "\n"
		owesA  = "Exec[a]: not refreshed after File[/c] changed; no later run makes up for it"
		owesB  = "Service[b]: not refreshed after File[/c] changed; no later run makes up for it"
	)
	for _, tc := range []struct {
		reason, phases, events string
		want                   []string
	}{
		{"killed before either", apply, begins + became, []string{owesA, owesB}},
		{"killed while the first one was refreshed", apply, begins + became + aBegan, []string{owesA, owesB}},
		{"killed after it", apply, begins + became + aBegan + aEnded, []string{owesB}},
		{"what Puppet itself leaves out is not lost by this", apply, begins + became + aEnded + bEnded, nil},
		{"ended by a signal", apply + ended, begins + became + aEnded, []string{owesB}},
		{"nothing had changed", apply, begins + same, nil},
		{"killed while it was applied", apply, begins, []string{
			"Exec[a]: not refreshed; if File[/c] had changed when the run was cut off, no later run makes up for it",
			"Service[b]: not refreshed; if File[/c] had changed when the run was cut off, no later run makes up for it",
		}},
		{"a line that was cut off", apply, begins + became + aEnded + `{"event":"do`, []string{owesB}},
		{"an older module", apply, `{"event":"start","resource":"File[/c]"}` + "\n" + became, nil},
	} {
		dir := t.TempDir()
		for name, content := range map[string]string{"phase.jsonl": tc.phases, "events.jsonl": tc.events} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := puppet.Judge(dir, "00000000-0000-0000-0000-000000000001")
		var said []string
		for _, f := range got.Failures {
			said = append(said, f.Resource+": "+f.Message)
		}
		if diff := cmp.Diff(tc.want, said); diff != "" || got.Outcome != tutti.Interrupted {
			t.Errorf("%s: %s; -want +got\n%s", tc.reason, got.Outcome, diff)
		}
	}
}

// However many refreshes are lost, the server accepts the result.
func TestManyLostRefreshes(t *testing.T) {
	var targets []string
	for i := range 100 {
		targets = append(targets, fmt.Sprintf("%q", fmt.Sprintf("Exec[%d]", i)))
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"phase.jsonl": `{"phase":"apply"}` + "\n", "events.jsonl": `{"event":"start","resource":"File[/c]","notifies":[` + strings.Join(targets, ",") + "]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := puppet.Judge(dir, "00000000-0000-0000-0000-000000000001")
	if err := got.Validate(); err != nil || len(got.Failures) != tutti.MaxFailures {
		t.Errorf("%d failures, %v", len(got.Failures), err)
	}
}
