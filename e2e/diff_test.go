//go:build e2e

package e2e_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
)

const diffFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  all: {nodes: [node-01, node-02]}
grants:
  - {to: all, exports: [Notify]}
`

// diffFile is a file that the present code of TestDiff writes.
const diffFile = "/var/tmp/e2e-diff"

// TestDiff compares the code of two nodes with other code that changes a parameter, a secret, a file of a module, a plugin and
// an export. Nothing of the other code reaches the nodes.
func TestDiff(t *testing.T) {
	defer sh(t, host(t, "node-01"), "rm -f "+diffFile)
	site := func(word string, node string) string {
		return strings.ReplaceAll(`
			node default {
				Notify <<| |>>
				file { '`+diffFile+`': content => "WORD of ${facts['networking']['hostname']}\n" }
				file { '`+diffFile+`-secret': content => Sensitive('secret-WORD') }
				file { '`+diffFile+`-source': source => 'puppet:///modules/m/text' }
			}
			`, "WORD", word) + node
	}
	module := func(word string) map[string]string {
		return map[string]string{"modules/m/files/text": word, "modules/m/lib/puppet_x/m.rb": "# " + word + "\n"}
	}
	push(t, diffFleet, site("old", ""), module("old"))
	if got := convergeOn(t, fleet, "all").end(); got.Verdict != tutti.VerdictConverged {
		t.Fatalf("%s: %s", got.Verdict, got.Message)
	}
	before := sh(t, host(t, "node-01"), "cat "+diffFile+"; readlink /var/lib/tutti/agent/environments/production")
	other := write(t, diffFleet, site("new", "node 'node-02' { @@notify { 'exported': } }\n"), module("new"))
	command := func(args ...string) (string, int) {
		t.Helper()
		root, out := cli.NewRoot(app.Commands()), &bytes.Buffer{}
		root.SetOut(out)
		root.SetErr(t.Output())
		root.SetArgs(append(args, "--operator", fleet.Conn.OperatorDir, "--server", fleet.Conn.Server))
		err := root.ExecuteContext(t.Context())
		t.Logf("%s\n%v", out, err)
		return out.String(), cli.ExitCode(err)
	}
	diff := func(codes string) (string, int) {
		t.Helper()
		return command("diff", "--code", codes, "--on", `node in ["node-01", "node-02"]`)
	}
	if out, code := diff("production.." + filepath.Join(other, "code")); code != cli.ExitDiffers {
		t.Errorf("exit code %d", code)
	} else {
		for _, want := range []string{
			"equal: 0; differ: 2; not compared: 0\n",
			"  changed  File[" + diffFile + "] content:\n    -old of node-01\n    +new of node-01\n", "  changed  File[" + diffFile + "-secret] content (sensitive)\n",
			"  changed  puppet:///modules/m/text content\n", "  changed  plugins: ", "  added    Notify[exported]",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("the output lacks %q", want)
			}
		}
		if strings.Contains(out, "secret-") {
			t.Error("the output has a secret")
		}
	}
	if out, code := diff("..production"); code != cli.ExitOK {
		t.Errorf("the same code: exit code %d: %s", code, out)
	}
	wrong := write(t, diffFleet, site("new", "class { 'nowhere': }\n"), map[string]string{"modules/m/manifests/init.pp": "class m {\n"})
	for dir, want := range map[string]string{
		other: "No errors, 0 warnings.\n",
		wrong: "manifests/site.pp:8: error: nothing defines the class nowhere",
	} {
		out, code := command("code", "check", "--node", "node-01", "--path", filepath.Join(dir, "code"), "--environment", "production")
		if !strings.Contains(out, want) || dir == wrong && (code != 2 || !strings.Contains(out, "modules/m/manifests/init.pp")) || dir == other && code != cli.ExitOK {
			t.Errorf("code check: exit code %d: %s", code, out)
		}
	}
	if after := sh(t, host(t, "node-01"), "cat "+diffFile+"; readlink /var/lib/tutti/agent/environments/production"); after != before {
		t.Errorf("after the diff: %s\nwant %s", after, before)
	}
	if n, err := fleet.Client.ShowNode(t.Context(), "node-01"); err != nil || n.Standing.State != api.NodeGood {
		t.Errorf("node-01 is %s %q, %v", n.Standing.State, n.Standing.Why, err)
	}
}
