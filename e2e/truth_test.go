//go:build e2e

package e2e_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// truthFor is the time that TestTruth spends on one seed. E2E_TRUTH (a duration) replaces this time, and
// E2E_SEEDS replaces the seeds.
const truthFor = 22 * time.Minute

// truthHosts are the hosts that can be nodes. Each seed uses at least truthFewest of them.
var truthHosts = []string{"node-01", "node-02", "node-03", "node-04", "node-05", "node-06", "node-07"}

const (
	truthFewest = 3
	// truthSpare is a machine that sometimes becomes a copy of a node.
	truthSpare = "spare"
)

func truthLab() string { return labName("e2e-truth") }

// TestTruth checks the central promise: if the server says that a node is good, the node is good. The test makes
// random changes and faults in a fleet whose code reads all kinds of inputs. After a few changes, a job in noop
// mode runs on each node that the server calls good. If the server still calls the node good afterwards, the
// noop run must have found nothing to change.
func TestTruth(t *testing.T) {
	length := truthFor
	if text := os.Getenv("E2E_TRUTH"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	f, c := truthFleetUp(t)
	for _, seed := range seeds(t, "E2E_SEEDS", fmt.Sprintf("%d,%d", time.Now().Unix(), time.Now().Unix()+1)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newTruth(t, f, c, seed)
			defer w.cleanUp()
			for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
				w.round()
			}
			t.Logf("seed %d: %d nodes, %d checks in %d rounds, %d false, %d nodes were not called good; %v", seed, len(w.names), w.checks, w.rounds, w.wrong, w.notGood, w.did)
			if w.checks == 0 {
				t.Error("no node was called good in any round: the test checked nothing")
			}
			w.note(seed)
		})
	}
}

// truth is a fleet, with the present content of its code and the findings so far.
type truth struct {
	t   *testing.T
	rnd *rand.Rand

	fleet       *stage.LabFleet
	clocks      *clocks
	names       []string // the names of the nodes, sorted
	environment string
	node        map[string]*truthNode
	granted     bool
	out         map[string]bool // the nodes that are not in the group with the grants
	taken       map[string]bool // the values of nodes that an operator has taken over

	rounds, checks, wrong, notGood int
	did                            map[string]int
	last                           []string // the changes since the last check of all nodes
}

// truthNode is the content of the code for one node.
type truthNode struct {
	literal   int      // in a file
	reads     []string // shared values
	publishes int      // a value that other nodes read; 0 if there is no such value
	of        string   // the node whose published value this node reads; empty if there is no such node
	exports   int      // how many resources
	collects  bool
	made      bool // a run of this node creates a fact
	named     int  // named is a number in a file of a module. The catalog names this file by its path.
}

// truthFleetUp boots a lab with the fleet of this test, in which each host has a clock of its own. The spare machine is
// not part of the fleet.
func truthFleetUp(t *testing.T) (*stage.LabFleet, *clocks) {
	t.Helper()
	spec := mustReadSpec(t, "truth.yaml")
	spec.Name = truthLab()
	program := clockedProgram(t)
	running := bootLab(t, spec)
	c := newClocks(t, running)
	for _, h := range running.Hosts { // the fleet's credentials begin in the past, so that they stay valid when the test sets a clock back later
		c.set(t, h, -clocksBegin)
	}
	f, err := startFleetWith(t.Context(), running, "tutti", program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	leaveFleet(t, f, truthSpare)
	c.check(t, f)
	for _, h := range running.Hosts {
		c.set(t, h, 0)
	}
	return f, c
}

// leaveFleet makes a host a machine that is not part of the fleet.
func leaveFleet(t *testing.T, f *stage.LabFleet, name string) {
	t.Helper()
	h, err := f.Lab.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, h, "systemctl disable --now --quiet tutti-agent; rm -rf /var/lib/tutti/agent")
	if err := f.Client.RemoveNode(t.Context(), tutti.NodeName(name)); err != nil {
		t.Fatal(err)
	}
}

func newTruth(t *testing.T, f *stage.LabFleet, c *clocks, seed uint64) *truth {
	w := &truth{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), fleet: f, clocks: c, environment: "production", granted: true,
		node: map[string]*truthNode{}, out: map[string]bool{}, taken: map[string]bool{}, did: map[string]int{},
	}
	w.draw()
	for _, name := range w.names {
		w.node[name] = &truthNode{}
		w.rewrite(name)
	}
	w.wipe()
	w.push()
	return w
}

// The method `draw` chooses the hosts that are nodes. Other hosts leave the fleet, and missing
// hosts join it.
func (w *truth) draw() {
	w.t.Helper()
	w.names = slices.Clone(truthHosts)
	w.rnd.Shuffle(len(w.names), func(i, j int) { w.names[i], w.names[j] = w.names[j], w.names[i] })
	w.names = w.names[:truthFewest+w.rnd.IntN(len(truthHosts)-truthFewest+1)]
	slices.Sort(w.names)
	w.t.Logf("the nodes are %v", w.names)
	nodes, err := w.fleet.Client.ListNodes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range truthHosts {
		is := slices.ContainsFunc(nodes, func(n api.NodeView) bool { return string(n.Node) == name })
		switch wanted := slices.Contains(w.names, name); {
		case is && !wanted:
			leaveFleet(w.t, w.fleet, name)
		case wanted && !is:
			if err := w.fleet.Join(w.t.Context(), w.host(name)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *truth) host(name string) *lab.Host {
	w.t.Helper()
	h, err := w.fleet.Lab.Host(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// wipe removes everything that the code creates, and the values that it reads.
func (w *truth) wipe() {
	for _, name := range w.names {
		sh(w.t, w.host(name), "rm -rf /run/truth /etc/facter/facts.d/truth_* /etc/puppet/truth; mkdir -p /etc/facter/facts.d")
		w.levels(name, "one", "two")
	}
	values, err := w.fleet.Client.ListValues(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range values {
		if strings.Contains(v.Key, "truth") && v.Owner == "" {
			if err := w.fleet.Client.UnsetValue(w.t.Context(), v.Key); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *truth) cleanUp() {
	w.rightClocks(func() bool { return true })
	for _, name := range w.names {
		if err := w.host(name).Heal(w.t.Context()); err != nil {
			w.t.Error(err)
		}
	}
	w.wipe()
	w.environment = "production"
	w.push()
}

// The method `rewrite` changes the code for one node.
func (w *truth) rewrite(name string) {
	n := w.node[name]
	switch w.rnd.IntN(8) {
	case 0:
		n.literal++
	case 1:
		n.reads = nil
		for _, key := range []string{"a", "b", "c"} {
			if w.rnd.IntN(2) == 0 {
				n.reads = append(n.reads, key)
			}
		}
	case 2:
		n.publishes = w.rnd.IntN(4)
	case 3:
		// the code has no cycles, because other tests cover cycles
		if n.of = w.names[w.rnd.IntN(len(w.names))]; n.of >= name {
			n.of = ""
		}
	case 4:
		n.exports = w.rnd.IntN(3)
	case 5:
		n.collects = !n.collects
	case 6:
		n.made = !n.made
	case 7:
		n.named++
	}
}

// The method `site` returns the site manifest of the code.
func (w *truth) site() string {
	var s strings.Builder
	s.WriteString("define truth_line($content) {\n  file { \"/run/truth/line-${title}\": content => \"${content}\" }\n}\n")
	for _, name := range w.names {
		n := w.node[name]
		fmt.Fprintf(&s, "node '%s' {\n  file { '/run/truth': ensure => directory }\n", name)
		file := func(title, content string) {
			fmt.Fprintf(&s, "  file { '/run/truth/%s': content => %s }\n", title, content)
		}
		fmt.Fprintf(&s, "  file { '/run/truth/named': source => \"${module_directory('named')}/files/%s\" }\n", name)
		file("literal", fmt.Sprintf("'%d'", n.literal))
		file("environment", "$environment")
		file("role", "\"is ${facts['truth_role']}\"")
		file("hiera", "String(lookup('truth::all', {default_value => 'none'}))")
		file("hiera-site", "String(lookup('truth::site', {default_value => 'none'}))")
		file("hiera-own", "String(lookup('truth::own', {default_value => 'none'}))")
		for _, key := range n.reads {
			file("value-"+key, fmt.Sprintf("String(tutti::value('shared/truth/%s', 'none'))", key))
		}
		if n.of != "" {
			file("of", fmt.Sprintf("String(tutti::value('truth/%s', 'none'))", n.of))
		}
		if n.publishes > 0 {
			fmt.Fprintf(&s, "  tutti_value { 'truth/%s': value => \"%d ${facts['truth_role']}\" }\n", name, n.publishes)
		}
		for i := range n.exports {
			fmt.Fprintf(&s, "  @@truth_line { \"${trusted['certname']}-%d\": content => \"%d ${facts['truth_role']}\" }\n", i, n.literal)
		}
		if n.collects {
			s.WriteString("  Truth_line <<| |>>\n")
		}
		if n.made {
			s.WriteString("  file { '/etc/facter/facts.d/truth_made.txt': content => \"truth_made=1\\n\" }\n")
			file("made", "\"made ${facts['truth_made']}\"")
		}
		s.WriteString("}\n")
	}
	return s.String()
}

// The method `files` returns the other files of the code.
func (w *truth) files() map[string]string {
	out := map[string]string{}
	for name, n := range w.node {
		out["modules/named/files/"+name] = strconv.Itoa(n.named)
	}
	return out
}

const truthFleet = `
fleet: e2e
environment: {name: ENVIRONMENT, path: ./code}
groups: {every: {nodes: [NODES]}, granted: {nodes: [MEMBERS]}}
GRANTSplans:
`

func (w *truth) push() {
	w.t.Helper()
	grants := ""
	if w.granted {
		grants = "grants:\n  - {to: granted, write: [truth/**], read: [truth/**], exports: [{type: Truth_line, defined: true}]}\n"
	}
	members := slices.DeleteFunc(slices.Clone(w.names), func(name string) bool { return w.out[name] })
	text := strings.NewReplacer("ENVIRONMENT", w.environment, "GRANTS", grants, "NODES", strings.Join(w.names, ", "), "MEMBERS", strings.Join(members, ", ")).Replace(truthFleet)
	for _, name := range w.names {
		text += fmt.Sprintf("  look-%s: {steps: [{run: %[1]s}]}\n", name)
	}
	dir := write(w.t, text, w.site(), w.files())
	if out, code := tuttiCLI(w.t, w.fleet, "code", "push", "--yes", "-f", filepath.Join(dir, "tutti.yaml")); code != 0 {
		w.t.Fatalf("push after %v: exit code %d: %s", w.last, code, out)
	}
}

// The method `round` changes the fleet, usually converges it, and checks whether the nodes that the server calls
// good are good.
func (w *truth) round() {
	w.rounds++
	if (!w.granted || len(w.out) > 0) && w.rnd.IntN(2) == 0 { // a node that exports is not good without its grant
		w.granted = true
		w.out = map[string]bool{}
		w.push()
	}
	for key := range w.taken { // the node that publishes the value is not good before the value is unset
		if w.rnd.IntN(2) == 0 {
			w.unset(key)
			delete(w.taken, key)
		}
	}
	w.rightClocks(func() bool { return w.rnd.IntN(2) == 0 })
	for range 1 + w.rnd.IntN(3) {
		w.do()
	}
	if w.rnd.IntN(4) > 0 {
		w.say("converge")
		converge(w.t, w.fleet).end()
	}
	if w.rnd.IntN(8) == 0 { // sometimes a change comes between a run and its check
		w.do()
	}
	w.look()
}

func (w *truth) say(what string) {
	word, _, _ := strings.Cut(what, " ")
	w.did[word]++
	w.last = append(w.last, what)
	w.t.Logf("round %d: %s", w.rounds, what)
}

// The method `do` makes one change in the fleet.
func (w *truth) do() {
	t, ctx := w.t, w.t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v: %v", w.last, err)
		}
	}
	name := w.names[w.rnd.IntN(len(w.names))]
	h := w.host(name)
	set := func(key string) {
		if w.rnd.IntN(3) == 0 {
			w.unset(key)
			return
		}
		value := strconv.Itoa(w.rnd.IntN(5))
		w.say("set " + key + " " + value)
		must(w.fleet.Client.SetValue(ctx, key, []byte(value)))
	}
	switch w.rnd.IntN(28) {
	case 0, 1, 2:
		w.say("code of " + name)
		w.rewrite(name)
		w.push()
	case 3, 4:
		set("shared/truth/" + string("abc"[w.rnd.IntN(3)]))
	case 5:
		set("shared/hiera/truth::all")
	case 6:
		set("node/" + name + "/hiera/truth::own")
	case 7, 8:
		w.say("fact of " + name)
		w.noticed(name, func() {
			sh(t, h, fmt.Sprintf("echo truth_role=%d-%d > /etc/facter/facts.d/truth_role.txt", w.rounds, w.rnd.IntN(1000)))
		})
	case 9:
		w.environment = map[string]string{"production": "staging", "staging": "production"}[w.environment]
		w.say("environment " + w.environment)
		w.push()
	case 10:
		w.granted = !w.granted
		w.say(fmt.Sprintf("grants %t", w.granted))
		w.push()
	case 11:
		w.say("restart-agent " + name)
		sh(t, h, "systemctl kill -s KILL tutti-agent; systemctl restart tutti-agent")
	case 12:
		w.say("restart-server")
		sh(t, w.fleet.Server, "systemctl kill -s KILL tutti-server; systemctl restart tutti-server")
	case 13:
		w.say("replace " + name)
		rejoin(ctx, t, w.fleet, h, "true", "tutti")
	case 14:
		w.say("cut-off " + name)
		must(h.Cut(ctx))
		w.rewrite(name)
		w.push()
		set("shared/truth/a")
		must(h.Heal(ctx))
	case 15:
		w.setBack(name)
	case 16:
		w.say("local-run " + name)
		sh(t, h, "tutti local run || true")
	case 17:
		w.out[name] = !w.out[name]
		w.say(fmt.Sprintf("group of %s %t", name, !w.out[name]))
		w.push()
	case 18:
		w.clone(name)
	case 19:
		w.restore()
	case 20:
		w.inPart(name)
	case 21:
		key := "truth/" + name
		set(key)
		w.taken[key] = true
	case 22:
		w.say("site-data of " + name)
		w.noticed(name, func() {
			sh(t, h, fmt.Sprintf("echo 'truth::site: %d-%d' > /etc/puppet/truth/%s.yaml", w.rounds, w.rnd.IntN(1000), []string{"one", "two"}[w.rnd.IntN(2)]))
		})
	case 23:
		w.say("levels of " + name)
		w.noticed(name, func() {
			if w.rnd.IntN(2) == 0 {
				w.levels(name, "one", "two")
			} else {
				w.levels(name, "two", "one")
			}
		})
	case 24:
		w.byHand(name)
	case 25, 26:
		w.wrongClock(h)
	case 27:
		w.wrongClock(w.fleet.Server)
	}
}

// state returns the state of a node, or an empty state if the server does not answer.
func (w *truth) state(name string) api.NodeState {
	d, err := w.fleet.Client.ShowNode(w.t.Context(), tutti.NodeName(name))
	if err != nil {
		return ""
	}
	return d.Standing.State
}

// The method `connected` waits until all nodes are connected.
func (w *truth) connected() {
	w.t.Helper()
	within(w.t, 2*time.Minute, fmt.Sprintf("all nodes to be connected after %v", w.last), func() bool {
		nodes, err := w.fleet.Client.ListNodes(w.t.Context())
		return err == nil && len(nodes) == len(w.names) && !slices.ContainsFunc(nodes, func(n api.NodeView) bool {
			return !n.Connected || n.Active != "" || n.Conflicted != ""
		})
	})
}

// The method `look` starts a noop run on each node that the server calls good, and checks the
// results.
func (w *truth) look() {
	w.t.Helper()
	w.connected()
	called := func() map[string]api.NodeDetail {
		out := map[string]api.NodeDetail{}
		for _, name := range w.names {
			d, err := w.fleet.Client.ShowNode(w.t.Context(), tutti.NodeName(name))
			if err != nil {
				w.t.Fatal(err)
			}
			out[name] = d
		}
		return out
	}
	before := called()
	// there is one job for each node, because in one job the nodes would see each other's planned exports
	jobs := map[string]*job{}
	for _, name := range w.names {
		if before[name].Standing.State == api.NodeGood {
			jobs[name] = start(w.t, w.fleet, tutti.PlanName("look-"+name), tutti.ModeNoop)
		}
	}
	for _, j := range jobs {
		j.end()
	}
	after := called()
	for _, name := range w.names {
		was, is := before[name].Standing, after[name].Standing
		if was.State != api.NodeGood {
			w.notGood++
			continue
		}
		r := jobs[name].last(tutti.StepName("run-"+name), tutti.NodeName(name))
		// A noop run that finds a change makes the node stale. Therefore the check also counts if the
		// node is stale only because of this noop run.
		good := is.State == api.NodeGood && was.Since.Equal(is.Since) || strings.Contains(is.Why, string(r.Run))
		if !good {
			w.notGood++
			continue
		}
		w.checks++
		if r.Result == nil || r.Result.Outcome != tutti.Unchanged || r.Result.Counts.OutOfSync > 0 || r.Result.NoopPending {
			w.wrong++
			w.t.Errorf("%s is called good (%s) after %v, and a run would end %+v; its code is\n%s", name, was.Why, w.last, r.Result, w.site())
		}
	}
	w.last = nil
}

// truthFile accumulates the results of TestTruth in deep tests.
const truthFile = "../docs/truth.md"

// The method `note` adds a row to the file if this is a deep test, and computes the sum of all
// rows.
func (w *truth) note(seed uint64) {
	if os.Getenv("E2E_DEEP") == "" {
		return
	}
	commit, err := exec.CommandContext(w.t.Context(), "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := os.ReadFile(truthFile)
	if err != nil {
		w.t.Fatal(err)
	}
	row := fmt.Sprintf("| %s | %s | %d | %d | %d | %d |\n", strings.TrimSpace(string(commit)), time.Now().UTC().Format(time.DateOnly), seed, w.rounds, w.checks, w.wrong)
	text = append(text, row...)
	checks, wrong := 0, 0
	for _, m := range truthRowRE.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[1])
		f, _ := strconv.Atoi(m[2])
		checks, wrong = checks+n, wrong+f
	}
	sum := fmt.Sprintf("Together: %d checks, %d false. With a confidence of 95 %%, fewer than %.2f %% of the nodes that are called good are not.", checks, wrong, 100*atMost(checks, wrong))
	text = truthSumRE.ReplaceAll(text, []byte(sum))
	if err := os.WriteFile(truthFile, text, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

var (
	truthRowRE = regexp.MustCompile(`(?m)^\| [0-9a-f]+ \| [0-9-]+ \| \d+ \| \d+ \| (\d+) \| (\d+) \|$`)
	truthSumRE = regexp.MustCompile(`(?m)^Together: .*$`)
)

// The function atMost assumes that an event happened `showed` times in `tries` attempts. It returns the upper bound
// of the probability of the event, with a confidence of 95 %.
func atMost(tries, showed int) float64 {
	fewer := func(p float64) float64 { // the probability of at most `showed` events, if p is the probability of one event
		sum := 0.0
		for k := range showed + 1 {
			choose, _ := math.Lgamma(float64(tries + 1))
			out, _ := math.Lgamma(float64(k + 1))
			in, _ := math.Lgamma(float64(tries - k + 1))
			sum += math.Exp(choose - out - in + float64(k)*math.Log(p) + float64(tries-k)*math.Log1p(-p))
		}
		return sum
	}
	low, high := 0.0, 1.0
	for range 60 {
		if mid := (low + high) / 2; fewer(mid) > 0.05 {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
