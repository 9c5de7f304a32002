//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
)

// packPuppet builds two packages of a host's Puppet, without maintainer scripts: /root/old.deb is
// the installed version, and /root/new.deb has a later version number. The script prints both
// versions.
const packPuppet = `
cd /root
rm -rf old new
mkdir -p old/DEBIAN
dpkg -L puppet-agent | while read -r file; do
	if [ -d "$file" ]; then mkdir -p "old$file"; elif [ -e "$file" ]; then cp -a "$file" "old$file"; fi
done
dpkg-query -W -f 'Package: ${Package}\nVersion: ${Version}\nArchitecture: ${Architecture}\nMaintainer: ${Maintainer}\nDepends: ${Depends}\nDescription: ${binary:Summary}\n' puppet-agent > old/DEBIAN/control
cp /var/lib/dpkg/info/puppet-agent.conffiles old/DEBIAN/conffiles
cp -a old new
sed -i 's/^Version: .*/&+e2e/' new/DEBIAN/control
version=usr/lib/ruby/vendor_ruby/puppet/version.rb
sed -i -E "s/(PUPPETVERSION = '[0-9]+\.[0-9]+\.)[0-9]+'/\199'/" new/$version
for tree in old new; do
	dpkg-deb -Znone --build $tree $tree.deb > /dev/null
	sed -nE "s/.*PUPPETVERSION = '(.*)'.*/\1/p" $tree/$version
	rm -r $tree
done
`

// TestPuppetUpgrade upgrades Puppet on a node where Puppet is loaded. The current run must end with
// the old Puppet. The next two runs must use the new Puppet. Their processes must be children of a
// new warm parent.
func TestPuppetUpgrade(t *testing.T) {
	h := host(t, "node-02")
	before, after, _ := strings.Cut(sh(t, h, packPuppet), "\n")
	if before == after || before == "" {
		t.Fatalf("Puppet %q is upgraded to %q", before, after)
	}
	later(t, h, "dpkg -i /root/old.deb")
	push(t, attackFleet, heldSite)

	held := hold(t, "node-02", "node-02")
	old := warmParent(t, h)
	sh(t, h, "dpkg -i /root/new.deb")
	held.letGo()
	checkWarm(t, held.job, held.ended(), before)

	again := func() {
		t.Helper()
		j := execute(t, "node-02", tutti.ModeApply)
		checkWarm(t, j, j.last(j.Steps[0].Name, "node-02"), after)
	}
	again()
	replaced := warmParent(t, h)
	if replaced == old {
		t.Errorf("parent %s has made a child after the upgrade, too", old)
	}
	again()
	if last := warmParent(t, h); last != replaced {
		t.Errorf("parent %s was replaced by %s although nothing has changed since", replaced, last)
	}
}

// checkWarm checks that a run has changed something, was warm, and used this version of Puppet.
func checkWarm(t *testing.T, j *job, r *engine.Run, version string) {
	t.Helper()
	j.expect(r, tutti.Changed, "", "")
	report, err := j.f.Client.RunReport(t.Context(), string(r.Run))
	if err != nil || report.Report == nil {
		t.Fatalf("the report of run %s: %+v, %v", r.Run, report, err)
	}
	if !r.Result.Warm || r.Result.Cold != "" || report.Report.Puppet != version {
		t.Errorf("the run had Puppet %s, warm %t (%q), want Puppet %s, warm", report.Report.Puppet, r.Result.Warm, r.Result.Cold, version)
	}
}

// warmParent returns the pid of the host's only warm parent.
func warmParent(t *testing.T, h *lab.Host) string {
	t.Helper()
	pids := sh(t, h, `for pid in $(cat /proc/$(systemctl show -p MainPID --value tutti-agent)/task/*/children); do
		if [ "$(cat /proc/$pid/comm)" = tutti-warm ]; then echo $pid; fi
	done`)
	if len(strings.Fields(pids)) != 1 {
		t.Fatalf("warm parents: %q, want one", pids)
	}
	return pids
}
