//go:build e2e

package e2e_test

import (
	"path"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

// pluginDir is a directory in the production environment. A test puts a feature into this
// directory. The feature has the name of one of Puppet's own features.
const pluginDir = "/etc/puppet/code/environments/production/modules/late/lib/puppet/feature"

// The method `plugins` checks a plugin that replaces one of Puppet's files and belongs to no type.
// The plugin comes with the same run that must use it. Before the run has a catalog, it starts
// again as a cold process. The server sees only one run.
func (s *puppetSite) plugins(t *testing.T) {
	const word = "the libuser of the module"
	first := s.web[0]
	s.manifest(t, "user { 'root': ensure => present }") // the provider of this type asks whether libuser exists
	run := func(why string, says bool) {
		t.Helper()
		j := s.execute(t, "first")
		r := j.last(j.Steps[0].Name, "web-01")
		j.expect(r, tutti.Unchanged, "", "")
		if (why == "") != r.Result.Warm || (why == "") != (r.Result.Cold == "") || !strings.Contains(r.Result.Cold, why) {
			t.Errorf("the run was warm %t, cold because %q; want because %q", r.Result.Warm, r.Result.Cold, why)
		}
		dir := path.Join("/var/lib/tutti/agent/runs", string(r.Run))
		if got := strings.Contains(sh(t, first, "cat "+dir+"/log.jsonl"), word); got != says {
			t.Errorf("the plugin was loaded: %t, want %t", got, says)
		}
		if got := sh(t, first, `grep -c '"phase":"apply"' `+dir+"/phase.jsonl"); got != "1" || len(j.Steps[0].Nodes[0].Runs) != 1 {
			t.Errorf("it was applied %s times, in %d runs", got, len(j.Steps[0].Nodes[0].Runs))
		}
	}
	s.execute(t, "first") // this run repairs the changes that other tests have left
	run("", false)
	sh(t, s.server, "mkdir -p "+pluginDir+"; echo \"Puppet.warning('"+word+"'); Puppet.features.add(:libuser) { false }\" > "+pluginDir+"/libuser.rb")
	run("lib/puppet/feature/libuser.rb came with the plugins", true)
	run("lib/puppet/feature/libuser.rb is loaded instead of what Puppet has", true)
	sh(t, s.server, "rm "+pluginDir+"/libuser.rb")
	// Puppet loads the plugin before it removes the plugin's file
	run("lib/puppet/feature/libuser.rb is loaded instead of what Puppet has", true)
	run("", false)
}
