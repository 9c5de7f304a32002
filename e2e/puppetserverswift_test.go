//go:build e2e

package e2e_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tutti-project/tutti/internal/lab"
)

// The example is deployed three times from nothing, on hosts of its own. The last host
// of each is the proxy, which makes the rings.
var (
	storedSwift    = []string{"storage-01", "storage-02", "proxy-01"}               // by a plan, through PuppetDB
	plannedSwift   = []string{"storage-03", "storage-04", "proxy-02"}               // by a plan, through Tutti
	convergedSwift = []string{"storage-05", "storage-06", "storage-07", "proxy-03"} // without a plan
)

// swiftEnvironment is the example's on the Puppet Server, where Tutti answers.
const swiftEnvironment = "swift"

//go:embed puppetdb.sh
var addPuppetDB string

// newSwiftSite boots a Puppet Server with PuppetDB, where Tutti's server is, too:
// PuppetDB answers without a certificate on its own host only. Of the hosts for the
// example those have joined that PuppetDB is for.
func newSwiftSite(t *testing.T) *puppetSite {
	t.Helper()
	spec := mustReadSpec(t, "puppetserver.yaml")
	example := mustReadSpec(t, "../examples/swift/lab.yaml")
	puppet := spec.Hosts[slices.IndexFunc(spec.Hosts, func(h lab.HostSpec) bool { return h.Name == "puppet" })]
	puppet.Packages = append(puppet.Packages, "puppet-module-swift", "puppetdb", "puppet-terminus-puppetdb", "postgresql")
	puppet.Prepare += addPuppetDB
	spec.Name, spec.Enabled, spec.Hosts = swiftSiteLab(), example.Enabled, []lab.HostSpec{puppet}
	for _, name := range slices.Concat(storedSwift, plannedSwift, convergedSwift) {
		spec.Hosts = append(spec.Hosts, lab.HostSpec{Name: name, Packages: example.Packages})
	}
	return newSite(t, siteSpec{Spec: spec, tutti: "puppet", units: []string{"puppetserver", "puppetdb"}, nodes: storedSwift})
}

// TestPuppetServerSwift deploys the example through a Puppet Server: with PuppetDB, and
// with the module and without PuppetDB. In between the module collects what PuppetDB
// keeps.
func TestPuppetServerSwift(t *testing.T) {
	s := newSwiftSite(t)
	t.Run("through PuppetDB", s.throughPuppetDB)
	t.Run("the module over PuppetDB", s.overPuppetDB)
	t.Run("the module alone", s.withoutPuppetDB)
}

// deploySwift makes the example's code an environment of the Puppet Server, with data
// of the site's.
func deploySwift(t *testing.T, server *lab.Host, environment, data string) {
	t.Helper()
	code := t.TempDir()
	if err := os.CopyFS(code, os.DirFS("../examples/swift/code")); err != nil {
		t.Fatal(err)
	}
	common := filepath.Join(code, "data/common.yaml")
	text, err := os.ReadFile(common)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(common, append(text, data...), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := "/etc/puppet/code/environments/" + environment
	sh(t, server, "rm -rf "+dir)
	if err := server.CopyIn(t.Context(), code, dir); err != nil {
		t.Fatal(err)
	}
	sh(t, server, "chmod -R a+rX "+dir)
}
