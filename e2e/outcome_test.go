//go:build e2e

package e2e_test

import (
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// endingsSite can fail in several ways. A file on the node chooses the way.
const endingsSite = `
$ending = strip(file('/run/e2e-ending', '/dev/null'))
case $ending {
  'compile':  { fail('no rings yet') }
  'cycle':    { notify { 'a': require => Notify['b'] } notify { 'b': require => Notify['a'] } }
  'resource': { file { '/nowhere/at/all': content => 'x' } }
  'hold': {
    exec { 'hold': command => '/bin/sh -c "echo \$\$ > /run/e2e-held; while [ ! -e /run/e2e-go ]; do sleep 0.1; done"', timeout => 0 }
  }
  default:    { }
}
`

// The type `ending` is a run that ends badly after a good run.
type ending struct {
	name    string
	spoil   string // a script that causes the problem on the node
	mend    string // a script that removes the problem
	begun   string // a script for the middle of the run; with a script the run is held in the middle
	because tutti.Reason
	says    string
	file    string // the failure must name this file
	line    int
	reason  string
}

const (
	runs  = "/var/lib/tutti/agent/runs"
	trees = "/var/lib/tutti/agent/code"
	site  = "/manifests/site.pp"
)

// The function `fill` returns a command that mounts a small full disk over a directory. The
// function `empty` returns the command that unmounts this disk.
func fill(dir string) string {
	return "mount -t tmpfs -o size=64k none " + dir + "; " + stuff(dir)
}
func stuff(dir string) string { return "dd if=/dev/zero of=" + dir + "/full bs=4k 2>/dev/null || true" }
func empty(dir string) string { return "umount -l " + dir }

func say(ending string) string { return "echo " + ending + " > /run/e2e-ending" }

var endings = map[tutti.NodeName][]ending{
	"node-01": {
		{
			name: "compile", spoil: say("compile"), because: tutti.BecauseCompile, says: "no rings yet", file: site, line: 4,
			reason: "an exit code alone does not say where",
		},
		{
			name: "cycle", spoil: say("cycle"), because: tutti.BecauseCatalog, says: "dependency cycle", file: site, line: 5,
			reason: "each resource of a cycle is called failed by Puppet",
		},
		{
			name: "resource", spoil: say("resource"), because: tutti.BecauseResources, says: "1 resource failed", file: site, line: 6,
			reason: "the report names it",
		},
	},
	"node-02": {
		{
			name: "no Puppet", spoil: "mv /usr/bin/puppet /usr/bin/puppet.away", mend: "mv /usr/bin/puppet.away /usr/bin/puppet",
			because: tutti.BecauseMachinery, says: "no Puppet on this node", reason: "somebody removed the package",
		},
		{
			name: "no facts", spoil: "mkdir -p /etc/puppet; cp /etc/puppet/puppet.conf /run/e2e-conf 2>/dev/null || true; printf '[main]\nfacts_terminus = yaml\n' >> /etc/puppet/puppet.conf",
			mend:    "rm /etc/puppet/puppet.conf; [ ! -e /run/e2e-conf ] || mv /run/e2e-conf /etc/puppet/puppet.conf",
			because: tutti.BecauseFacts, says: "no facts of node-02", reason: "Puppet would compile a catalog without them",
		},
		{
			name: "report unreadable", begun: "systemctl stop tutti-agent; touch /run/e2e-go; while [ -e /proc/PID ]; do sleep 0.1; done; echo '{\"status\": \"chan' > RUN/report.json; systemctl start tutti-agent",
			because: tutti.BecauseMachinery, says: "report cannot be read", reason: "a report that nobody can read is no success",
		},
	},
	"node-03": {
		{
			name: "disk of runs full", spoil: fill(runs), mend: empty(runs),
			because: tutti.BecauseMachinery, says: "no space left on device", reason: "nothing can begin",
		},
		{
			name: "disk of code full", spoil: "mv " + trees + " " + trees + ".away; mkdir " + trees + "; " + fill(trees), mend: empty(trees) + "; rmdir " + trees + "; mv " + trees + ".away " + trees,
			because: tutti.BecauseMachinery, says: "no space left on device", reason: "the code cannot be fetched",
		},
		{
			name: "disk of runs full in the middle", spoil: "mount -t tmpfs -o size=512k none " + runs, mend: empty(runs),
			begun:   stuff(runs) + "; touch /run/e2e-go",
			because: tutti.BecauseMachinery, says: "o space left on device", reason: "the report cannot be written",
		},
		{
			name: "disk of runs full to the last byte", spoil: "mount -t tmpfs -o size=512k none " + runs, mend: empty(runs),
			begun:   stuff(runs) + "; for f in RUN/phase.jsonl RUN/log.jsonl RUN/events.jsonl; do yes '' 2>/dev/null >> $f || true; done; touch /run/e2e-go",
			because: tutti.BecauseMachinery, says: "no space left on device", reason: "not even the end can be written: it is not as if somebody had killed Puppet",
		},
	},
}

// TestOutcomes causes problems on nodes whose last run was good. The run after the good run must
// report the problem at once. The run must not show the report of the good run as its own. After
// the problem is removed, the node works again.
func TestOutcomes(t *testing.T) {
	push(t, attackFleet, endingsSite)
	for node, cases := range endings {
		t.Run(string(node), func(t *testing.T) {
			t.Parallel()
			for _, e := range cases {
				t.Run(e.name, func(t *testing.T) { e.check(t, node) })
			}
			good(t, node)
		})
	}
}

// The function `good` starts a run on a node that has nothing to change.
func good(t *testing.T, node tutti.NodeName) tutti.Result {
	t.Helper()
	sh(t, host(t, string(node)), "rm -f /run/e2e-*")
	r := only(execute(t, tutti.PlanName(node), tutti.ModeApply))
	if r.Outcome != tutti.Unchanged || r.Report == "" {
		t.Fatalf("a run of the good node ended %+v", r)
	}
	return r
}

// The function `only` takes a job with a single run, and returns the result of this run.
func only(j *job) tutti.Result {
	j.t.Helper()
	r := j.Steps[0].Nodes[0].Last()
	if r == nil || r.Result == nil {
		j.t.Fatalf("job %s has no result: %s", j.id, j.Message)
	}
	return *r.Result
}

func (e ending) check(t *testing.T, node tutti.NodeName) {
	h := host(t, string(node))
	before := good(t, node)
	if e.mend != "" {
		later(t, h, e.mend)
	}
	if e.spoil != "" {
		sh(t, h, e.spoil)
	}
	j := e.begin(t, h, node)
	j.end()
	r := only(j)
	j.expect(j.Steps[0].Nodes[0].Last(), tutti.Failed, e.because, e.says)
	if e.file != "" && !slices.ContainsFunc(r.Failures, func(f tutti.Failure) bool {
		return strings.HasSuffix(f.File, e.file) && f.Line == e.line
	}) {
		t.Errorf("failures %+v, want one at %s:%d", r.Failures, e.file, e.line)
	}
	if r.Report == before.Report {
		t.Error("it came with the report of the run before")
	}
	if t.Failed() {
		t.Log("because ", e.reason)
	}
}

// The method `begin` starts the run. If the case has a script for the middle of the run, the method
// executes this script.
func (e ending) begin(t *testing.T, h *lab.Host, node tutti.NodeName) *job {
	if e.begun == "" {
		return start(t, fleet, tutti.PlanName(node), tutti.ModeApply)
	}
	sh(t, h, say("hold"))
	j := start(t, fleet, tutti.PlanName(node), tutti.ModeApply)
	run := &held{job: j, host: h}
	j.until(func(w api.Watched) bool {
		if w.Live == nil || w.Live.Resource != "Exec[hold]" {
			return false
		}
		run.run = w.Live.Run
		return true
	})
	sh(t, h, strings.NewReplacer("PID", run.pid(), "RUN", runs+"/"+string(run.run)).Replace(e.begun))
	return j
}

// TestForgedCode signs code with another operator's key. The server must refuse the code. If a node
// gets the code in another way, the node must refuse it, too.
func TestForgedCode(t *testing.T) {
	manifest, err := json.Marshal(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{}})
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fleet.Client.PushCode(t.Context(), tutti.CodePush{SignedCode: tutti.SignedCode{
		Manifest: manifest, Signature: identity.SignManifest(private, "production", manifest),
	}})
	if tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("the server said %v to a foreign signature, want that it refuses", err)
	}

	// The node pins another key, so this node must treat the server's code as forged.
	push(t, attackFleet, `notify { 'signed by the operator': }`)
	node := host(t, "node-01")
	const file = "/var/lib/tutti/agent/identity/membership.json"
	raw := sh(t, node, "cat "+file)
	var member map[string]any
	if err := json.Unmarshal([]byte(raw), &member); err != nil {
		t.Fatal(err)
	}
	member["code_key"] = identity.EncodeCodePublicKey(public)
	forged, err := json.Marshal(member)
	if err != nil {
		t.Fatal(err)
	}
	later(t, node, "mv "+file+".kept "+file+"; systemctl restart tutti-agent")
	if _, err := stage.Output(t.Context(), node, forged, "sh", "-euc", "cp -p "+file+" "+file+".kept; cat > "+file+"; systemctl restart tutti-agent"); err != nil {
		t.Fatal(err)
	}
	j := execute(t, "node-01", tutti.ModeApply)
	j.expect(j.last("run-one", "node-01"), tutti.Failed, tutti.BecauseRefused, "not signed by the operator")
	if got := sh(t, node, "ls "+runs+"/"+string(j.last("run-one", "node-01").Run)); strings.Contains(got, "phase.jsonl") {
		t.Errorf("Puppet was started: %s", got)
	}
}
