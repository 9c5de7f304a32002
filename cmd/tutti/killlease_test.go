//go:build killpoints

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// TestAnExclusiveJobKilledAtEveryPoint kills server and agent, one after the other, when they first
// pass each point of the lease. The job must end as it does without a kill, and Puppet must be
// enabled as before.
func TestAnExclusiveJobKilledAtEveryPoint(t *testing.T) {
	tpl := newTemplate(t, "db-01 read shared/x\n")
	noted := t.TempDir()
	to := map[string]string{}
	for _, name := range []string{serverProcess, dbProcess} {
		to[name] = killpoint.To + "=" + filepath.Join(noted, name)
	}
	want, err := tpl.exclusive(t, to, false)
	if err != nil || want.Verdict != tutti.VerdictSucceeded || len(want.Runs) != 1 {
		t.Fatalf("without a kill: %+v, %v", want, err)
	}
	cases := 0
	for _, name := range []string{serverProcess, dbProcess} {
		for _, c := range casesOf(t, name, filepath.Join(noted, name)) {
			point, first := strings.CutSuffix(c.point, "#1")
			if !first || !strings.Contains(point, "lease") {
				continue
			}
			cases++
			t.Run(c.process+" "+point, func(t *testing.T) {
				got, err := tpl.exclusive(t, map[string]string{c.process: killpoint.At + "=" + c.point}, true)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
		}
	}
	if cases < 10 {
		t.Errorf("%d points of a lease were passed, want those of note, file, call and append", cases)
	}
}

// The method `exclusive` starts an exclusive job, waits for its end, and checks the state that the
// job has left.
func (tpl template) exclusive(t *testing.T, env map[string]string, dies bool) (outcome, error) {
	t.Helper()
	f := tpl.fleet(t, env)
	defer f.clear(t)
	f.plan = "own"
	got, err := f.outcome(t.Context())
	if err == nil && dies {
		err = f.died(t.Context())
	}
	for _, left := range []string{"root/var/cache/puppet/state/agent_disabled.lock", "root/var/cache/puppet/state/agent_disabled.lock.tutti"} {
		if _, bad := os.Stat(filepath.Join(f.dir, left)); bad == nil && err == nil {
			err = errors.New(left + " is left behind")
		}
	}
	return got, err
}
