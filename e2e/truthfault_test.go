//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/stage"
)

// The method `levels` makes the node's own hiera.yaml name these files. The first file has
// priority.
func (w *truth) levels(name string, files ...string) {
	w.t.Helper()
	text := "version: 5\nhierarchy:\n"
	for _, file := range files {
		text += fmt.Sprintf("  - {name: %s, datadir: /etc/puppet/truth, path: %s.yaml}\n", file, file)
	}
	sh(w.t, w.host(name), fmt.Sprintf("mkdir -p /etc/puppet/truth; printf '%%s' '%s' > /etc/puppet/hiera.yaml", text))
}

// The method `noticed` makes a change on a node that its agent must notice. If the node was good,
// the server must not call it good any more. On an idle machine this takes at most a minute. The agent looks at files
// for at most a fiftieth of the time, and collects facts at the lowest priority, so a busy machine needs longer.
func (w *truth) noticed(name string, change func()) {
	w.t.Helper()
	before := w.state(name)
	change()
	if before == api.NodeGood {
		within(w.t, 5*time.Minute, name+" not to be called good, for what it is compiled from has changed", func() bool { return w.state(name) != api.NodeGood })
	}
}

func (w *truth) unset(key string) {
	w.t.Helper()
	w.say("unset " + key)
	if err := w.fleet.Client.UnsetValue(w.t.Context(), key); err != nil && tutti.CodeOf(err) != tutti.CodeNotFound {
		w.t.Fatalf("%v: %v", w.last, err)
	}
}

// byHand runs Puppet twice while the agent is off. The first run changes something that the code has made, and the
// second run changes nothing. Sometimes the node's clock is wrong.
func (w *truth) byHand(name string) {
	w.t.Helper()
	if w.rnd.IntN(2) == 0 {
		w.wrongClock(w.host(name))
	}
	w.say("by-hand " + name)
	h := w.host(name)
	sh(w.t, h, `systemctl stop tutti-agent
		puppet apply -e "file { '/run/truth': ensure => directory } -> file { '/run/truth/literal': content => 'by hand' }"
		puppet apply -e "notify { 'nothing': }"
		systemctl start tutti-agent`)
	w.connected()
	eventually(w.t, name+" not to be called good, for Puppet ran by hand", func() bool { return w.state(name) != api.NodeGood })
}

// inPart runs a part of other code on a node. In most cases inPart then restores the old code.
func (w *truth) inPart(name string) {
	w.say("part " + name)
	before := *w.node[name]
	w.rewrite(name)
	w.push()
	w.connected()
	id, err := w.fleet.Client.StartJob(w.t.Context(), api.StartJob{Mode: tutti.ModeApply, Runs: &api.NodeRuns{
		Nodes: []tutti.NodeName{tutti.NodeName(name)}, RunOptions: tutti.RunOptions{Tags: []string{"file"}},
	}})
	if err != nil {
		w.t.Fatalf("%v: %v", w.last, err)
	}
	(&job{id: id, t: w.t, f: w.fleet}).end()
	if w.rnd.IntN(3) > 0 {
		*w.node[name] = before
		w.push()
	}
}

// The method `clone` copies a node's disk to another machine, and lets both machines run until the
// server reports the conflict. After that, the original machine is the node again, and the copy is
// stopped.
func (w *truth) clone(name string) {
	w.say("clone " + name)
	t, ctx, node, spare := w.t, w.t.Context(), w.host(name), w.host(truthSpare)
	w.connected()
	// tar ends with 1 if the agent has changed a file meanwhile
	packed, err := stage.Output(ctx, node, nil, "sh", "-c", "tar -C /var/lib/tutti/agent -c . || [ $? = 1 ]")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage.Output(ctx, spare, packed, "sh", "-euc", "mkdir -p /var/lib/tutti/agent; chmod 700 /var/lib/tutti/agent; tar -C /var/lib/tutti/agent -x; systemctl start tutti-agent"); err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" to be conflicted, for it is two machines", func() bool {
		d, err := w.fleet.Client.ShowNode(ctx, tutti.NodeName(name))
		return err == nil && d.Conflicted != ""
	})
	if state := w.state(name); state == api.NodeGood {
		w.wrong++
		t.Errorf("%s is called good, and it is two machines", name)
	}
	sh(t, spare, "systemctl stop tutti-agent; rm -rf /var/lib/tutti/agent")
	ticket := w.ticket(name)
	if err := w.fleet.Client.KeepNode(ctx, api.KeepNode{Node: tutti.NodeName(name), Boot: ticket}); err != nil {
		t.Fatalf("after %v: %v", w.last, err)
	}
}

// setBack saves Tutti's state on a node, makes a change, and runs the node with this change. Then setBack
// restores the saved state.
func (w *truth) setBack(name string) {
	w.say("set-back " + name)
	h := w.host(name)
	sh(w.t, h, "systemctl stop tutti-agent; rm -rf /var/tmp/truth-state; cp -a /var/lib/tutti/agent /var/tmp/truth-state; systemctl start tutti-agent")
	w.rewrite(name)
	w.push()
	w.connected()
	converge(w.t, w.fleet).end()
	sh(w.t, h, "systemctl stop tutti-agent; rm -rf /var/lib/tutti/agent; mv /var/tmp/truth-state /var/lib/tutti/agent; systemctl start tutti-agent")
}

// ticket returns the ticket with which the server distinguishes a node's own machine from its copy.
func (w *truth) ticket(name string) string {
	w.t.Helper()
	d, err := w.fleet.Client.ShowNode(w.t.Context(), tutti.NodeName(name))
	if err != nil {
		w.t.Fatal(err)
	}
	// the latest machine is at the end of the list; a restored machine is in the list twice
	for _, m := range slices.Backward(d.Machines) {
		if m.Host == name {
			_, hex, _ := strings.Cut(string(m.Ticket), ":")
			return hex
		}
	}
	w.t.Fatalf("no machine of %s is called so: %v", name, d.Machines)
	return ""
}

// The method `restore` makes a backup of the server, makes a change, and starts a converge with this
// change. Then the method restores the server from the backup.
func (w *truth) restore() {
	w.say("restore")
	sh(w.t, w.fleet.Server, "rm -f /var/tmp/truth.tar; tutti server backup /var/tmp/truth.tar")
	name := w.names[w.rnd.IntN(len(w.names))]
	w.rewrite(name)
	w.push()
	w.connected()
	if w.rnd.IntN(2) == 0 {
		converge(w.t, w.fleet).end()
	} else { // nodes run during the restore
		converge(w.t, w.fleet)
	}
	sh(w.t, w.fleet.Server, `systemctl stop tutti-server; rm -rf /var/lib/tutti/server.before; mv /var/lib/tutti/server /var/lib/tutti/server.before
		tutti server restore /var/tmp/truth.tar --dir /var/lib/tutti/server; systemctl start tutti-server; rm -rf /var/lib/tutti/server.before /var/tmp/truth.tar`)
	within(w.t, time.Minute, "the server to answer after a restore", func() bool { return w.state(name) != "" })
	w.connected()
	w.push()
}
