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

// Puppet itself never does the refreshes that a cut-off run owes, because its next run finds nothing to change. The
// module in this test is older than ADR 0029.
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
		owesA  = "Exec[a]: not refreshed after File[/c] changed; the next run repeats the refresh"
		owesB  = "Service[b]: not refreshed after File[/c] changed; the next run repeats the refresh"
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
			"Exec[a]: not refreshed, and File[/c] may have changed when the run was cut off; the next run repeats the refresh",
			"Service[b]: not refreshed, and File[/c] may have changed when the run was cut off; the next run repeats the refresh",
		}},
		{"a line that was cut off", apply, begins + became + aEnded + `{"event":"do`, []string{owesB}},
		{"a module older than that", apply, `{"event":"start","resource":"File[/c]"}` + "\n" + became, nil},
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

// The module makes a note before each change and after each refresh. These notes show which refreshes are owed.
func TestRefreshesThatAreOwed(t *testing.T) {
	const (
		begins  = `{"event":"start","resource":"File[/c]"}` + "\n"
		changes = `{"event":"change","resource":"File[/c]","notifies":["Exec[a]"]}` + "\n" + `{"event":"change","resource":"File[/c]","notifies":["Service[b]"]}` + "\n"
		became  = `{"event":"done","resource":"File[/c]","changed":true}` + "\n"
		partly  = `{"event":"done","resource":"File[/c]","changed":true,"failed":true}` + "\n"
		broke   = `{"event":"done","resource":"File[/c]","changed":false,"failed":true}` + "\n"
		aGoesOn = `{"event":"change","resource":"Exec[a]","notifies":["Exec[z]"]}` + "\n"
		aDone   = `{"event":"refreshed","resource":"Exec[a]"}` + "\n" + `{"event":"done","resource":"Exec[a]","changed":true}` + "\n"
		bFailed = `{"event":"done","resource":"Service[b]","failed":true,"changed":false}` + "\n"
		bLeft   = `{"event":"done","resource":"Service[b]","skipped":true}` + "\n"
		bDone   = `{"event":"refreshed","resource":"Service[b]"}` + "\n" + `{"event":"done","resource":"Service[b]","changed":true}` + "\n"
		mount   = `{"event":"change","resource":"Mount[/m]","notifies":["Mount[/m]","Exec[z]"]}` + "\n"
		mounted = `{"event":"refreshed","resource":"Mount[/m]"}` + "\n" + `{"event":"done","resource":"Mount[/m]","changed":true}` + "\n"
		dropped = `{"event":"dropped","resource":"Exec[gone]"}` + "\n"
	)
	type list []string
	for _, tc := range []struct {
		reason, events string
		due, over      list
	}{
		{"it may have changed", begins + changes, list{"Exec[a]", "Service[b]"}, nil},
		{"it has changed", begins + changes + became, list{"Exec[a]", "Service[b]"}, nil},
		{"it was not changed after all", begins + changes + broke, nil, nil},
		{"it has changed in part, and Puppet forgets that", begins + changes + partly, list{"Exec[a]", "Service[b]"}, nil},
		{"one was refreshed", begins + changes + became + aDone, list{"Service[b]"}, list{"Exec[a]"}},
		{"both were", begins + changes + became + aDone + bDone, nil, list{"Exec[a]", "Service[b]"}},
		{"a refresh that fails stays owed", begins + changes + became + aDone + bFailed, list{"Service[b]"}, list{"Exec[a]"}},
		{"and one that is left out", begins + changes + became + aDone + bLeft, list{"Service[b]"}, list{"Exec[a]"}},
		{"what is refreshed notifies, too", begins + changes + became + aGoesOn, list{"Exec[a]", "Exec[z]", "Service[b]"}, nil},
		{"and owes that when it was", begins + changes + became + aGoesOn + aDone, list{"Exec[z]", "Service[b]"}, list{"Exec[a]"}},
		{"an owed one is repeated though nothing changed", bDone, nil, list{"Service[b]"}},
		{"a resource that refreshes itself has", mount + mounted, list{"Exec[z]"}, list{"Mount[/m]"}},
		{"and has not", mount, list{"Exec[z]", "Mount[/m]"}, nil},
		{"no part of the catalog any more", dropped, nil, list{"Exec[gone]"}},
		{"a line that a full disk has cut off", begins + `{"event":"chan` + "\n" + changes + became, list{"Exec[a]", "Service[b]"}, nil},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(tc.events), 0o600); err != nil {
			t.Fatal(err)
		}
		due, over, err := puppet.Refreshes(dir)
		if diff := cmp.Diff([]list{tc.due, tc.over}, []list{due, over}); diff != "" || err != nil {
			t.Errorf("%s: %v; -want +got\n%s", tc.reason, err, diff)
		}
	}
}

// If the events of a run cannot be read, the node begins no run. The error says how a person can change this.
func TestRefreshesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := puppet.Refreshes(dir); err == nil || !strings.Contains(err.Error(), "if you remove "+path+", no run repeats") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if due, over, err := puppet.Refreshes(dir); err != nil || due != nil || over != nil {
		t.Errorf("without the file: %v, %v, %v", due, over, err)
	}
}
