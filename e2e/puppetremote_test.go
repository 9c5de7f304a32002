//go:build e2e

package e2e_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// checkRemoteControl asks and controls the Puppet of nodes where the stock daemon is idle.
// checkRemoteControl then begins a run and checks it.
func checkRemoteControl(t *testing.T, s *puppetSite) {
	first := s.web[0]
	puppet := func(code int, args ...string) string {
		t.Helper()
		out, got := tuttiCLI(t, s.LabFleet, append([]string{"puppet"}, args...)...)
		if got != code {
			t.Errorf("tutti puppet %v: exit code %d, want %d\n%s", args, got, code, out)
		}
		return out
	}
	says := func(out, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("%q is nowhere in\n%s", pattern, out)
		}
	}
	says(puppet(0, "status"), `(?m)^web-01 +idling `)
	s.manifest(t, "file { '/var/tmp/e2e-remote': content => 'one' }")
	says(puppet(0, "runonce", "--on", "true"), ` succeeded in .*: 2 runs`)

	says(puppet(0, "disable", "--on", `node == "web-01"`, "-m", "new kernel"), `(?m)^web-01 +disabled +- +new kernel$`)
	if diff := cmp.Diff(`{"disabled_message":"new kernel"}`, sh(t, first, "cat $(puppet config print agent_disabled_lockfile --section agent)")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	says(puppet(0, "count"), `(?m)^disabled +1$`)
	s.manifest(t, "file { '/var/tmp/e2e-remote': content => 'two' }")
	ran := puppet(1, "runonce", "--on", "true") // only web-02 is enabled
	says(ran, ` succeeded in .*: 1 run,`)
	says(puppet(0, "enable", "--on", "true"), `(?m)^web-02 +idling +already enabled`)
	if got := sh(t, first, "cat /var/tmp/e2e-remote"); got != "one" {
		t.Errorf("disabled, its file became %q", got)
	}

	// Puppet's own summary and report must belong to that run.
	says(puppet(0, "last-run-summary", "--on", `node == "web-02"`), `(?m)^web-02 +applied .* changed`)
	says(puppet(0, "summary"), `(?m)^changed +`)
	j := (&job{id: tutti.JobID(regexp.MustCompile(`puppet-\d+`).FindString(ran)), t: t, f: s.LabFleet}).end()
	shown, code := tuttiCLI(t, s.LabFleet, "run", "show", string(j.last(j.Steps[0].Name, "web-02").Run))
	if code != 0 {
		t.Errorf("run show: exit code %d", code)
	}
	says(shown, `(?m)^code +of the Puppet Server, environment production$`)
	says(shown, `File\[/var/tmp/e2e-remote\] +at manifests/site.pp:2  in Class\[main\]`)
	says(shown, `content: \S+ → \S+ +intentional`)
	if s := j.Summary(j.EndedAt); s.Outcome != tutti.VerdictSucceeded || strings.Contains(shown, "web-01") {
		t.Errorf("%+v\n%s", s, shown)
	}
}
