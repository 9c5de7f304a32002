//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/lab"
)

// What the sites have in common that deploy the example through a Puppet Server.

// swiftHosts are hosts with what the example's have.
func swiftHosts(t *testing.T, names ...string) []lab.HostSpec {
	t.Helper()
	example := mustReadSpec(t, "../examples/swift/lab.yaml")
	var hosts []lab.HostSpec
	for _, name := range names {
		hosts = append(hosts, lab.HostSpec{Name: name, Packages: example.Packages})
	}
	return hosts
}

// startDaemons starts the stock daemon of Puppet on the hosts of each environment, and
// waits until its first run has ended, which makes the certificate: all at once, since
// Puppet's agent waits half a minute for the answer to its request for one.
func startDaemons(t *testing.T, environments map[string][]*lab.Host) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for environment, hosts := range environments {
		for _, h := range hosts {
			group.Go(func() error {
				const script = `printf '[main]\ncertname = %s\nserver = puppet\n[agent]\nenvironment = %s\n' "$(hostname)" "$0" > /etc/puppet/puppet.conf
					systemctl start puppet
					until test -e /var/cache/puppet/state/last_run_report.yaml; do sleep 0.2; done`
				_, err := app.Output(ctx, h, nil, "sh", "-euc", script, environment)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
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
