//go:build e2e

package e2e_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/release"
	"github.com/tutti-project/tutti/internal/stage"
)

const mixedFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  first:  {nodes: [node-01]}
  second: {nodes: [node-02]}
grants:
  - {to: first, write: [shared/release/**]}
plans:
  both:
    steps:
      - run: first
      - wait: {value: shared/release/number, timeout: 60s}
      - run: second
  slow:
    steps: [{run: first}]
  debug:
    steps:
      - {run: first, debug: true}
      - run: second
`

// mixedSite lets node-01 publish a number that node-02 reads.
const mixedSite = `
node 'node-01' { tutti_value { 'shared/release/number': value => NUMBER } }
node 'node-02' {
  $number = tutti::value('shared/release/number', 0)
  file { '/root/release': content => "${number}\n" }
}
`

const mixedSlow = "exec { '/bin/sleep 600': }\n"

// The type `mixed` is a fleet whose server and agents are of this release or of the last release.
type mixed struct {
	*stage.LabFleet
	t      *testing.T
	last   release.Release
	number int // the last published number
}

// TestMixedReleases lets this release and the last release, which is built from its commit, work
// together. The test first upgrades the agents before the server, and then the server before the
// agents. The server must not send an agent an order that the agent does not know. But agents of
// the last release know all present orders. Therefore the test also has a server that assumes that
// these agents do not know the option `debug`.
func TestMixedReleases(t *testing.T) {
	all, err := release.Read("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	last, strict := filepath.Join(dir, "last"), filepath.Join(dir, "strict")
	if err := all[0].BuildFrom(t.Context(), "..", dir, last); err != nil {
		t.Fatal(err)
	}
	if err := release.Build(t.Context(), "..", strict, release.WithoutDebug); err != nil {
		t.Fatal(err)
	}
	spec := mustReadSpec(t, "lab.yaml")
	spec.Name, spec.Hosts = releaseLab(), spec.Hosts[:3]
	f, err := app.StartLabFleet(t.Context(), bootLab(t, spec), "tutti", last, dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &mixed{LabFleet: f, t: t, last: all[0]}
	m.works()

	t.Log("the last release's server, agents of this release")
	m.agents(binary)
	m.works()
	m.cancels()

	t.Log("this release's server, agents of the last one")
	m.agents(last)
	m.server(binary)
	m.works()
	m.cancels()
	m.explains()
	if out, code := tuttiCLI(t, f, "node", "show", "node-01"); code != 0 || !strings.Contains(out, "does not know diff, enc, inventory, remote.check, remote.compare, remote.diff, rotate_ca, statements, tells_facts: upgrade") {
		t.Errorf("node show: exit code %d: %s\nwant that the last release does not know these, and nothing else", code, out)
	}

	t.Log("an order that the agents do not know")
	m.server(strict)
	m.refused()
	m.agents(binary)
	m.number++
	m.push(mixedSite)
	if j := start(t, f, "debug", tutti.ModeApply).end(); j.Verdict != tutti.VerdictSucceeded {
		t.Errorf("after the agents' upgrade the job %s: %s", j.Verdict, j.Message)
	}
}

// releaseLab returns the name of the lab for the test of two releases.
func releaseLab() string { return labName("e2e-release") }

// The method `agents` installs a program on all nodes, and waits until all agents have the version
// of this program.
func (m *mixed) agents(program string) {
	m.t.Helper()
	for _, h := range m.Nodes {
		m.install(h, program, "tutti-agent")
	}
	m.connected(versionOf(m.t, program))
}

// The method `server` installs a program on the server's host and waits until all nodes have
// reported their versions.
func (m *mixed) server(program string) {
	m.t.Helper()
	m.install(m.Server, program, "tutti-server")
	m.connected("")
}

func (m *mixed) install(h *lab.Host, program, unit string) {
	m.t.Helper()
	if err := h.CopyIn(m.t.Context(), program, "/usr/local/bin/tutti"); err != nil {
		m.t.Fatal(err)
	}
	sh(m.t, h, "systemctl restart "+unit)
}

// The method `connected` waits until all nodes are connected and report this version. An empty
// version means any version.
func (m *mixed) connected(version string) {
	m.t.Helper()
	eventually(m.t, "all nodes are connected with version "+version, func() bool {
		nodes, err := m.Client.ListNodes(m.t.Context())
		if err != nil { // the server is starting
			return false
		}
		for _, n := range nodes {
			if !n.Connected || n.Version == "" || version != "" && n.Version != version {
				return false
			}
		}
		return len(nodes) == len(m.Nodes)
	})
}

// versionOf returns the version that a program prints.
func versionOf(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) == 0 {
		t.Fatalf("%s --version: %q, %v", program, out, err)
	}
	return words[len(words)-1]
}

func (m *mixed) push(site string) {
	m.t.Helper()
	site = strings.ReplaceAll(site, "NUMBER", strconv.Itoa(m.number))
	if err := m.Push(m.t.Context(), write(m.t, mixedFleet, site)); err != nil {
		m.t.Fatal(err)
	}
}

// The method `works` starts a plan, a noop job and a converging job, and checks their effects on
// the hosts.
func (m *mixed) works() {
	m.t.Helper()
	m.number++
	m.push(mixedSite)
	if j := start(m.t, m.LabFleet, "both", tutti.ModeApply).end(); j.Verdict != tutti.VerdictSucceeded {
		m.t.Fatalf("plan: %s: %s", j.Verdict, j.Message)
	}
	m.wrote(m.number)
	m.number++
	m.push(mixedSite)
	noop := start(m.t, m.LabFleet, "both", tutti.ModeNoop).end()
	if first := noop.last("run-first", "node-01").Result; noop.Verdict != tutti.VerdictSucceeded || !first.NoopPending {
		m.t.Errorf("noop: %s: %s, %+v", noop.Verdict, noop.Message, first)
	}
	m.wrote(m.number - 1)
	if j := converge(m.t, m.LabFleet).end(); j.Verdict != tutti.VerdictConverged {
		m.t.Errorf("converge: %s: %s", j.Verdict, j.Message)
	}
	m.wrote(m.number)
}

// The method `wrote` checks that node-02 has the number.
func (m *mixed) wrote(number int) {
	m.t.Helper()
	h, err := m.Lab.Host("node-02")
	if err != nil {
		m.t.Fatal(err)
	}
	if got, want := sh(m.t, h, "cat /root/release"), strconv.Itoa(number); got != want {
		m.t.Errorf("node-02 has %q, want %s", got, want)
	}
}

// The method `cancels` starts a long run, cancels it, and checks that the run was interrupted.
func (m *mixed) cancels() {
	m.t.Helper()
	m.push(mixedSlow)
	slow := start(m.t, m.LabFleet, "slow", tutti.ModeApply)
	slow.until(func(w api.Watched) bool {
		if w.Event == nil {
			return false
		}
		_, gated := w.Event.Body.(*tutti.RunGated)
		return gated
	})
	if err := m.Client.CancelJob(m.t.Context(), api.CancelJob{Job: slow.id, Now: true, Reason: "enough"}); err != nil {
		m.t.Fatal(err)
	}
	slow.end()
	if r := slow.last("run-first", "node-01"); slow.Verdict != tutti.VerdictCancelled || r.Outcome() != tutti.Interrupted {
		m.t.Errorf("cancelled: %s: %s, its run %s", slow.Verdict, slow.Message, r.Outcome())
	}
}

// The method `explains` asks the server which nodes read the number that node-01 publishes.
func (m *mixed) explains() {
	m.t.Helper()
	got, err := m.Client.ExplainValue(m.t.Context(), "shared/release/number")
	if err != nil || len(got.Readers) != 1 || got.Readers[0] != "node-02" {
		m.t.Errorf("explain value: %+v, %v", got, err)
	}
	why, err := m.Client.ExplainNode(m.t.Context(), "node-02")
	if err != nil || why.Reads == 0 {
		m.t.Errorf("explain node: %+v, %v", why, err)
	}
}

// The method `refused` starts a plan whose first step has the option `debug`. The server assumes
// that agents of the last release do not know this option. The method checks where Tutti reports
// the refusal of the step.
func (m *mixed) refused() {
	m.t.Helper()
	m.push(mixedSite)
	says := tutti.TooOld("node-01", m.last.Version, []tutti.Capability{"debug"})
	lacks := []tutti.Capability{"debug", "diff", "enc", tutti.CapabilityInventory, tutti.RemoteCheck.Needs(), tutti.RemoteCompare.Needs(), tutti.RemoteDiff.Needs(), tutti.CapabilityRotateCA, tutti.CapabilityStatements, tutti.CapabilityFacts}
	j := start(m.t, m.LabFleet, "debug", tutti.ModeApply).end()
	if j.Verdict != tutti.VerdictFailed {
		m.t.Errorf("the job %s: %s", j.Verdict, j.Message)
	}
	j.expect(j.last("run-first", "node-01"), tutti.Failed, tutti.BecauseRefused, says)
	if n := len(j.Step("run-second").Nodes[0].Runs); n != 0 {
		m.t.Errorf("the step after it had %d runs", n)
	}
	nodes, err := m.Client.ListNodes(m.t.Context())
	if err != nil || len(nodes) != 2 || !slices.Equal(nodes[0].TooOldFor, lacks) || nodes[0].Version != m.last.Version {
		m.t.Errorf("nodes %+v, %v", nodes, err)
	}
	if out, code := tuttiCLI(m.t, m.LabFleet, "node", "show", "node-01"); code != 0 || !strings.Contains(out, tutti.TooOld("node-01", m.last.Version, lacks)) {
		m.t.Errorf("node show: exit code %d: %s\nwant that it lacks %v", code, out, lacks)
	}
	if out, code := tuttiCLI(m.t, m.LabFleet, "job", "show", string(j.id)); !strings.Contains(out, says) {
		m.t.Errorf("job show: exit code %d: %s\nwant %q", code, out, says)
	}
	m.number++
	m.push(mixedSite)
	if j := start(m.t, m.LabFleet, "both", tutti.ModeApply).end(); j.Verdict != tutti.VerdictSucceeded {
		m.t.Errorf("what the agents know is not given to them: %s: %s", j.Verdict, j.Message)
	}
	m.wrote(m.number)
}
