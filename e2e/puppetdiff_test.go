//go:build e2e

package e2e_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
)

// servedTree lists the files of a Puppet Server, except its logs.
const servedTree = `find /etc/puppet /var/lib/puppetserver /var/lib/puppet /var/cache/puppet /tmp -mindepth 1 -xdev -not -path '/tmp/jruby*' -not -path '/tmp/hsperf*' -printf '%p %m %u %s %T@\n' 2>/dev/null | sort`

// The method `diff` compares two environments for the group web, and returns the output and the exit code.
func (s *puppetSite) diff(t *testing.T, codes, host string) (string, int) {
	t.Helper()
	root, out := cli.NewRoot(app.Commands()), &bytes.Buffer{}
	root.SetOut(out)
	root.SetErr(t.Output())
	root.SetArgs([]string{"diff", "--code", codes, "--compile-host", host, "--on", `"web" in groups`, "--operator", s.Conn.OperatorDir, "--server", s.Conn.Server})
	err := root.ExecuteContext(t.Context())
	t.Logf("%s\n%v", out, err)
	return out.String(), cli.ExitCode(err)
}

// comparesEnvironments compares two environments of the Puppet Server, whose host joins as a node. Nothing is stored.
func (s *puppetSite) comparesEnvironments(t *testing.T) {
	s.join(t, s.server)
	s.setFleet(t, strings.Replace(siteFleet, "plans:\n", "  servers: {nodes: [puppet]}\nplans:\n", 1))
	s.manifest(t, "file { '/var/tmp/e2e-secret': content => Sensitive('geheim-1') }")
	sh(t, s.server, `cd /etc/puppet/code/environments; rm -rf branch broken ends
		echo >> production/manifests/site.pp; cp -r production branch; cp -r production broken
		sed -i 's/geheim-1/geheim-2/' branch/manifests/site.pp
		cat >> branch/manifests/site.pp <<'END'
notify { "new on ${trusted['certname']}": }
END
		cp -r production ends
		cat >> ends/manifests/site.pp <<'END'
if $trusted['certname'] == 'web-01' { inline_template("<% Process.spawn('/bin/sleep', '613.5'); exit!(0) %>") }
END
		cat >> broken/manifests/site.pp <<'END'
if $trusted['certname'] == 'web-02' { fail('not there') }
END
`)
	before := sh(t, s.server, servedTree)
	for _, tc := range []struct {
		codes string
		code  int
		want  []string
	}{
		{"production..branch", cli.ExitDiffers, []string{
			"A production (of the Puppet Server on puppet)", "equal: 0; differ: 2; not compared: 0", "2 nodes: web-01, web-02\n", "  changed  File[/var/tmp/e2e-secret] content (sensitive)\n",
			"  added    Notify[new on web-01]", "  added    Notify[new on web-02]",
		}},
		{"production..broken", cli.ExitNotCompared, []string{"equal: 1; differ: 0; not compared: 1", "did not compile B: Evaluation Error: Error while evaluating a Function Call, not there"}},
		{"production..ends", cli.ExitNotCompared, []string{"equal: 1; differ: 0; not compared: 1", "did not compile B: the compile ended the whole process"}},
		{"production..nowhere", 2, nil},
	} {
		out, code := s.diff(t, tc.codes, "puppet")
		if code != tc.code {
			t.Errorf("%s: exit code %d, want %d", tc.codes, code, tc.code)
		}
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the output lacks %q", tc.codes, want)
			}
		}
		if strings.Contains(out, "geheim") {
			t.Errorf("%s: the output has a secret", tc.codes)
		}
	}
	if _, code := s.diff(t, "production..branch", "web-01"); code != 2 {
		t.Errorf("a node without a Puppet Server: exit code %d", code)
	}
	if got := sh(t, s.server, "pgrep -fx '/bin/sleep 613.5' || true"); got != "" {
		t.Errorf("a process goes on: %s", got)
	}
	if after := sh(t, s.server, servedTree); after != before {
		t.Errorf("a comparison has changed files of the Puppet Server:\n%s", changedLines(before, after))
	}
	s.manifest(t, "")
}
