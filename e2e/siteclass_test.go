//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// classFleet lets the host of the Puppet Server join without an operator, and puts it into a group by its certificate.
var classFleet = strings.Replace(siteFleet, "plans:\n", `  servers: {trusted: 'certname == "puppet"'}
join: [{certname: puppet}]
plans:
`, 1)

// classSite is the code of the classes. The program comes from the Puppet Server. The rules of the policy come from Hiera.
const classSite = `
$tutti = { 'puppet' => '%s', 'web-02' => '%s' }[$trusted['certname']]
if $tutti {
  class { 'tutti::agent':
    ensure => $tutti, server => '%s', pin => '%s', source => 'puppet:///modules/site/tutti', digest => '%s',
  }
  class { 'tutti::policy': ensure => $tutti }
}
`

const classHiera = `
tutti::policy::policy_default: allow
tutti::policy::policies:
  - {action: deny, callers: [operator:jo, operator:max], actions: disable}
tutti::policy::groups: {night: [operator:jo]}
`

// classPolicy is the content of the two files that tutti::policy writes from this data.
const classPolicy = "# Puppet writes this file (class tutti::policy).\npolicy default allow\ndeny\toperator:jo operator:max\tdisable\t*\t*\nnight operator:jo"

// codeDir is the environment on the Puppet Server.
const codeDir = "/etc/puppet/code/environments/production"

// classRun is a run of `puppet agent` on a host, with the value of `ensure` for this host.
type classRun struct {
	host         *lab.Host
	ensure, exit string // the exit code: 0 if the run changed nothing, and 2 if it changed something
}

// installsTheAgent lets the classes of the module install the agent and the node's policy. The host of the Puppet Server
// joins by a rule, and leaves again. web-02 is a node. It leaves, waits for an approval, and joins again.
func (s *puppetSite) installsTheAgent(t *testing.T) {
	first, web := s.server, s.web[1]
	s.setFleet(t, classFleet)
	if err := s.server.CopyIn(t.Context(), binary, "/root/tutti"); err != nil {
		t.Fatal(err)
	}
	digest := sh(t, s.server, `cd `+codeDir+`
		/root/tutti module install modules > /dev/null
		mkdir -p modules/site/files data
		mv /root/tutti modules/site/files/tutti
		chmod 644 modules/site/files/tutti
		printf 'version: 5\nhierarchy: [{name: all, path: all.yaml}]\n' > hiera.yaml
		cat > data/all.yaml <<'END'`+classHiera+`END
		sha256sum < modules/site/files/tutti | cut -d' ' -f1`)
	before := tracesOfTutti(t, first)

	s.runClass(t, digest, classRun{first, "present", "2"}, classRun{web, "absent", "2"})
	s.waitForNode(t, "puppet")
	shown, err := s.Client.ShowNode(t.Context(), "puppet")
	if err != nil || shown.GroupsWhy["servers"] != "by its certificate" {
		t.Errorf("puppet is in the groups %v, %v", shown.GroupsWhy, err)
	}
	if diff := cmp.Diff(classPolicy, sh(t, first, "cat /etc/tutti/policy /etc/tutti/policy.groups")); diff != "" {
		t.Errorf("the policy: -want +got\n%s", diff)
	}
	s.checkLeft(t, web, before)

	s.runClass(t, digest, classRun{first, "present", "0"}, classRun{web, "present", "2"})
	s.runClass(t, digest, classRun{first, "absent", "2"}, classRun{web, "present", "2"}) // web-02 asks again
	s.checkLeft(t, first, before)
	if err := s.Client.ApproveNode(t.Context(), api.ApproveNode{Node: "web-02"}); err != nil {
		t.Fatal(err)
	}
	s.runClass(t, digest, classRun{first, "absent", "0"}, classRun{web, "present", "2"})
	s.waitForNode(t, "web-02")
	s.runClass(t, digest, classRun{web, "present", "0"})
	s.execute(t, "deploy").checkSummary(tutti.VerdictSucceeded, 2, 0) // also with the module on the Puppet Server

	sh(t, s.server, "cd "+codeDir+" && rm -r modules/tutti modules/site data hiera.yaml")
	sh(t, web, "rm -r /etc/tutti")
	s.manifest(t, "")
	s.setFleet(t, siteFleet)
}

// runClass runs `puppet agent` on hosts at the same time.
func (s *puppetSite) runClass(t *testing.T, digest string, runs ...classRun) {
	t.Helper()
	view, err := s.Client.ShowJoinCA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ensure := map[string]string{}
	for _, r := range runs {
		ensure[r.host.Name] = r.ensure
	}
	s.manifest(t, fmt.Sprintf(classSite, ensure["puppet"], ensure["web-02"], view.Server, view.Pin, digest))
	logs := make(chan string)
	for _, r := range runs {
		go func() {
			out, err := stage.Output(t.Context(), r.host, nil, "sh", "-c", "puppet agent --test --color false 2>&1; echo exit $?")
			text := strings.TrimSpace(string(out))
			if err == nil && strings.HasSuffix(text, "exit "+r.exit) && !strings.Contains(text, "Error:") {
				text = ""
			} else {
				text = fmt.Sprintf("%s with %s, want exit %s: %v\n%s", r.host.Name, r.ensure, r.exit, err, text)
			}
			logs <- text
		}()
	}
	for range runs {
		if text := <-logs; text != "" {
			t.Error(text)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func (s *puppetSite) node(t *testing.T, name tutti.NodeName) (n api.NodeView, joined bool) {
	t.Helper()
	nodes, err := s.Client.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(nodes, func(n api.NodeView) bool { return n.Node == name })
	if at < 0 {
		return n, false
	}
	return nodes[at], true
}

func (s *puppetSite) waitForNode(t *testing.T, name tutti.NodeName) {
	t.Helper()
	eventually(t, string(name)+" is connected", func() bool {
		n, _ := s.node(t, name)
		return n.Connected
	})
}

// checkLeft checks that a host is no node, and has nothing of Tutti except the directory of the policy.
func (s *puppetSite) checkLeft(t *testing.T, h *lab.Host, want string) {
	t.Helper()
	if n, joined := s.node(t, tutti.NodeName(h.Name)); joined {
		t.Errorf("%s has not left: %+v", h.Name, n)
	}
	if diff := cmp.Diff(want, tracesOfTutti(t, h)); diff != "" {
		t.Errorf("what remains on %s: -want +got\n%s", h.Name, diff)
	}
}

// tracesOfTutti lists the files, units and processes of Tutti on a host, without the code and the plugins of Puppet.
func tracesOfTutti(t *testing.T, h *lab.Host) string {
	t.Helper()
	return sh(t, h, `find / -xdev -path '*tutti*' ! -path /etc/tutti ! -path '/var/log/*' ! -path '/var/cache/puppet/lib/*' ! -path '`+codeDir+`/*'
		systemctl list-unit-files --no-legend 'tutti*' || true
		pgrep -ax tutti || true`)
}
