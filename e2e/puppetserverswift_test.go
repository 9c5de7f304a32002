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

// The test deploys the example three times from nothing, on separate hosts. In each list the last
// host is the proxy, which builds the rings.
var (
	// the plan deploys these hosts through PuppetDB
	storedSwift = []string{"storage-01", "storage-02", "proxy-01"}
	// the plan deploys these hosts through Tutti
	plannedSwift   = []string{"storage-03", "storage-04", "proxy-02"}
	convergedSwift = []string{"storage-05", "storage-06", "storage-07", "proxy-03"} // without a plan
)

// swiftEnvironment is the name of the example's environment on the Puppet Server when Tutti
// answers.
const swiftEnvironment = "swift"

//go:embed puppetdb.sh
var addPuppetDB string

// newSwiftSite boots a Puppet Server with PuppetDB. Tutti's server is on the same host, because
// PuppetDB answers a client without a certificate only if the client is on PuppetDB's own host.
// Only the hosts for the test with PuppetDB have joined.
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

// TestPuppetServerSwift deploys the example through a Puppet Server. The test deploys once with
// PuppetDB, and once with the module and without PuppetDB. Between these two deployments, a test
// lets the module collect exports from PuppetDB. The first case sends reports and facts to PuppetDB.
func TestPuppetServerSwift(t *testing.T) {
	s := newSwiftSite(t)
	t.Run("reports to PuppetDB", s.reportsToPuppetDB)
	t.Run("through PuppetDB", s.throughPuppetDB)
	t.Run("the module over PuppetDB", s.overPuppetDB)
	t.Run("the module alone", s.withoutPuppetDB)
}

// deploySwift copies the code of the example to an environment of the Puppet Server, with data of
// the site.
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
