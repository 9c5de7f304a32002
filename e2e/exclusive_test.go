//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/lab"
)

// disabledLock is the file with which Puppet is disabled on a node of the site.
const disabledLock = "/var/cache/puppet/state/agent_disabled.lock"

// The method `alone` starts the exclusive plan of the site. The runs of this plan wait on every
// node until the test calls goOn.
func (s *puppetSite) alone(t *testing.T, name string) (j *job, goOn func()) {
	t.Helper()
	s.manifest(t, "exec { '/bin/sh -c \"touch /run/"+name+"; until test -e /run/"+name+"-go; do sleep 0.1; done\"': creates => '/run/"+name+"-go' }")
	j = start(t, s.LabFleet, "alone", tutti.ModeApply)
	for _, h := range s.web {
		sh(t, h, "until test -e /run/"+name+"; do sleep 0.1; done")
	}
	return j, func() {
		t.Helper()
		for _, h := range s.web {
			sh(t, h, "touch /run/"+name+"-go")
		}
	}
}

// noTrace fails if an exclusive job has left files on a node.
func noTrace(t *testing.T, h *lab.Host) {
	t.Helper()
	if got := sh(t, h, "ls "+disabledLock+"* /var/lib/tutti/lease.json 2>/dev/null || true"); got != "" {
		t.Errorf("%s: left behind: %s", h.Name, got)
	}
}

// exclusiveJobs tests exclusive jobs on nodes with the stock daemon and the stock command.
func exclusiveJobs(t *testing.T, s *puppetSite) {
	first, second := s.web[0], s.web[1]

	t.Run("nobody else runs, it does", func(t *testing.T) {
		j, goOn := s.alone(t, "e2e-alone")
		said := sh(t, first, "puppet agent --test 2>&1 || true")
		if !strings.Contains(said, "administratively disabled (Reason: 'Tutti job "+string(j.id)+" by ") || !strings.Contains(said, "new kernel; until the job ends, at most 20s after") {
			t.Errorf("puppet agent --test says: %s", said)
		}
		// USR1 starts a run of the daemon, which reports after some time that it may not run.
		sh(t, second, "kill -USR1 $(systemctl show -p MainPID --value puppet); timeout 60 sh -c 'until journalctl -u puppet --since -10min | grep -q \"disabled (Reason: .Tutti job\"; do sleep 0.2; done'")
		goOn()
		j.end()
		j.checkSummary(tutti.VerdictSucceeded, 2, 0)
		noTrace(t, first)
		noTrace(t, second)
		if said := sh(t, first, "puppet agent --test 2>&1; test $? = 0 -o $? = 2"); strings.Contains(said, "disabled") {
			t.Errorf("afterwards puppet agent --test says: %s", said)
		}
	})

	t.Run("one is disabled: nothing is changed", func(t *testing.T) {
		sh(t, second, "puppet agent --disable 'new disk, ask jo'")
		before := sh(t, second, "stat -c '%U %G %a %Y' "+disabledLock+"; cat "+disabledLock)
		j := start(t, s.LabFleet, "alone", tutti.ModeApply).end()
		if j.Verdict != tutti.VerdictFailed || !strings.Contains(j.Message, "web-02: disabled: new disk, ask jo") {
			t.Errorf("%s %s", j.Verdict, j.Message)
		}
		noTrace(t, first)
		if after := sh(t, second, "stat -c '%U %G %a %Y' "+disabledLock+"; cat "+disabledLock); after != before {
			t.Errorf("the file of whoever disabled it was %q, it is %q", before, after)
		}
		sh(t, second, "puppet agent --enable")
	})

	t.Run("the server dies and stays away", func(t *testing.T) {
		j, goOn := s.alone(t, "e2e-lease")
		for _, h := range s.web {
			sh(t, h, "test -e "+disabledLock)
		}
		sh(t, s.Server, "systemctl kill --signal KILL tutti-server; systemctl stop tutti-server")
		for _, h := range s.web {
			sh(t, h, "until test ! -e "+disabledLock+"; do sleep 0.2; done")
			noTrace(t, h)
		}
		sh(t, s.Server, "systemctl start tutti-server")
		goOn()
		j.end()
		if j.Verdict != tutti.VerdictFailed || !strings.Contains(j.Message, ": not held any more") {
			t.Errorf("%s %s", j.Verdict, j.Message)
		}
	})
}
