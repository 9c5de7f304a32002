package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// ownPuppet is a Puppet outside of runs. It records each change.
type ownPuppet struct {
	mu       sync.Mutex
	disabled string
	changes  []string
	large    bool
	many     int  // how many resources a catalog of a Puppet Server has
	unknown  bool // whether the content of its files is not known
}

func (p *ownPuppet) Status() (tutti.PuppetStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disabled != "" {
		return tutti.PuppetStatus{Status: "disabled", DisableMessage: p.disabled}, nil
	}
	return *servertest.Idle(), nil
}

func (p *ownPuppet) Enable() (bool, error) { return p.set("enable", "") }

func (p *ownPuppet) Disable(message string, _ bool) (bool, error) { return p.set("disable", message) }

func (p *ownPuppet) set(what, message string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = append(p.changes, what)
	changed := p.disabled != message
	p.disabled = message
	return changed, nil
}

func (p *ownPuppet) made() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changes
}

func (p *ownPuppet) Summary() (tutti.RunSummary, error) {
	return tutti.RunSummary{TotalResources: 7}, nil
}

func (p *ownPuppet) Resource(context.Context, string, string) (json.RawMessage, error) {
	if p.large {
		return json.Marshal(strings.Repeat("x", tutti.MaxRemoteReply))
	}
	return json.RawMessage(`{}`), nil
}

// Check finds the first line of each file in the code.
func (p *ownPuppet) Check(_ context.Context, _, dir string) ([]tutti.CodeProblem, error) {
	out := []tutti.CodeProblem{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		line, _, _ := strings.Cut(string(raw), "\n")
		name, _ := filepath.Rel(dir, path)
		out = append(out, tutti.CodeProblem{Level: tutti.ProblemWarning, File: name, Line: 1, Message: line}, tutti.CodeProblem{Level: tutti.ProblemError, File: name, Line: 2, Message: line})
		return err
	})
	return out, err
}

// Served compiles a catalog whose only resource names the environment. The node bad-01 does not compile.
func (p *ownPuppet) Served(_ context.Context, environment, key string, nodes []tutti.NodeName, found func(tutti.NodeName, json.RawMessage, string) error) error {
	if environment == "nowhere" || key == "" {
		return tutti.Errorf(tutti.CodeInvalid, "no such environment")
	}
	for _, n := range nodes {
		resources := map[string]any{"File[/x]": map[string]any{"parameters": map[string]string{"content": environment}}}
		for i := range max(0, p.many-1) {
			resources[fmt.Sprintf("File[/%03d]", i)] = map[string]any{"parameters": map[string]string{"content": environment + strings.Repeat("-", 50)}}
		}
		whole := map[string]any{"resources": resources, "lib": "x"}
		if !p.unknown {
			whole["sources"] = map[string]string{}
		}
		catalog, err := json.Marshal(whole)
		if err != nil {
			return err
		}
		failed := ""
		if n == "bad-01" {
			catalog, failed = nil, "no class in "+environment
		}
		if err := found(n, catalog, failed); err != nil {
			return err
		}
	}
	return nil
}

func allowAll(policy.Question) (bool, string) { return true, "policy:1: allow" }

// The function `controlled` returns an agent that is connected and answers questions.
func controlled(t *testing.T, allow func(policy.Question) (bool, string)) (*lab, *ownPuppet) {
	t.Helper()
	l, own := newLab(t, nil), &ownPuppet{}
	l.start(func(o *agent.Options) { o.Local, o.Allow = own, allow })
	l.line.settle()
	return l, own
}

func (l *lab) ask(in api.NodesQuestion) api.NodeAnswer {
	l.t.Helper()
	return servertest.Asked(l.t, l.fleet, in)["db-01"]
}

// TestRemoteControl: the agent does each requested action once, and its answer
// arrives.
func TestRemoteControl(t *testing.T) {
	l, own := controlled(t, allowAll)
	for _, tc := range []struct {
		reason  string
		in      api.NodesQuestion
		verdict tutti.RemoteVerdict
		says    string
		status  string
		changes []string
	}{
		{"status", api.NodesQuestion{Action: tutti.RemoteStatus}, tutti.RemoteOK, "", "stopped", nil},
		{"it may run", api.NodesQuestion{Action: tutti.RemoteRun}, tutti.RemoteOK, "", "stopped", nil},
		{"enabled it is", api.NodesQuestion{Action: tutti.RemoteEnable}, tutti.RemoteOK, "already enabled", "stopped", []string{"enable"}},
		{"disable", api.NodesQuestion{Action: tutti.RemoteDisable, Message: "disk"}, tutti.RemoteOK, "", "disabled", []string{"enable", "disable"}},
		{"it may not run", api.NodesQuestion{Action: tutti.RemoteRun}, tutti.RemoteFailed, "Puppet is disabled: 'disk'", "", []string{"enable", "disable"}},
		{"summary", api.NodesQuestion{Action: tutti.RemoteSummary}, tutti.RemoteOK, "", "", []string{"enable", "disable"}},
		{"a resource", api.NodesQuestion{Action: tutti.RemoteResource, Type: "user"}, tutti.RemoteOK, "", "", []string{"enable", "disable"}},
		{"facts of no run", api.NodesQuestion{Action: tutti.RemoteFacts}, tutti.RemoteFailed, "no run of Tutti has collected facts", "", []string{"enable", "disable"}},
	} {
		a := l.ask(tc.in)
		status := ""
		if a.Status != nil {
			status = a.Status.Status
		}
		if a.Verdict != tc.verdict || !strings.Contains(a.Message, tc.says) || status != tc.status || a.Rule != "policy:1: allow" {
			t.Errorf("%s: %+v; want %s %q %q", tc.reason, a, tc.verdict, tc.says, tc.status)
		}
		if diff := cmp.Diff(tc.changes, own.made()); diff != "" {
			t.Errorf("%s: done so far: -want +got\n%s", tc.reason, diff)
		}
	}
	own.large = true
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteResource, Type: "user"}); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "too large") {
		t.Errorf("an answer that is too large: %.300v", a)
	}
}

// TestWhatThePolicyRefusesIsNotDone: if the policy refuses an action, the agent
// does not ask the server about it either.
func TestWhatThePolicyRefusesIsNotDone(t *testing.T) {
	var asked []string
	l, own := controlled(t, func(q policy.Question) (bool, string) {
		asked = append(asked, q.Caller+" "+string(q.Action))
		return false, "policy:3: deny"
	})
	a := l.ask(api.NodesQuestion{Action: tutti.RemoteDisable})
	if a.Verdict != tutti.RemoteRefused || a.Rule != "policy:3: deny" || len(own.made()) > 0 || l.line.count(wire.OpAct) > 0 {
		t.Errorf("%+v, done: %v", a, own.made())
	}
	if diff := cmp.Diff([]string{"operator:ada disable"}, asked); diff != "" {
		t.Errorf("the policy was asked: -want +got\n%s", diff)
	}
}

// TestADoorbellTwiceOrLateChangesOnce: after the first doorbell, the server no longer
// wants the action. A second or a late doorbell therefore changes nothing.
func TestADoorbellTwiceOrLateChangesOnce(t *testing.T) {
	l, own := newLab(t, nil), &ownPuppet{}
	bus := answering{l.line, make(chan struct{})}
	l.start(func(o *agent.Options) { o.Local, o.Allow, o.Bus = own, allowAll, bus })
	l.line.settle()
	asked := make(chan api.NodeAnswer, 1)
	go func() { asked <- l.ask(api.NodesQuestion{Action: tutti.RemoteDisable, Message: "disk"}) }()
	<-bus.answered
	if a := <-asked; a.Verdict != tutti.RemoteOK {
		t.Fatalf("%+v", a)
	}
	for _, request := range []string{"made up", askedIn(t, l.fleet)} {
		payload, err := json.Marshal(tutti.RemoteRequest{Request: request, Action: tutti.RemoteEnable, Caller: "operator:ada", Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.fleet.Bus.Ring(l.node.Key, wire.RingRemote, payload); err != nil {
			t.Fatal(err)
		}
		<-bus.answered
	}
	if diff := cmp.Diff([]string{"disable"}, own.made()); diff != "" {
		t.Errorf("done: -want +got\n%s", diff)
	}
}

// The type `answering` is a bus that signals each answer to a question.
type answering struct {
	*line
	answered chan struct{}
}

func (b answering) Send(op string, payload []byte) error {
	err := b.line.Send(op, payload)
	if op == wire.OpAnswer {
		b.answered <- struct{}{}
	}
	return err
}

// askedIn returns the id of the question in the log.
func askedIn(t *testing.T, f *servertest.Fleet) string {
	t.Helper()
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.RemoteAsked); ok {
			return b.Request
		}
	}
	t.Fatal("nothing was asked")
	return ""
}

// The method `ran` leaves the directory of a run that the server knows. The method makes the
// directory by rename, because the agent removes directories of runs that never began.
func (l *lab) ran(facts string, at time.Time) {
	l.t.Helper()
	run := servertest.NewRunID()
	made := filepath.Join(l.dir, string(run))
	if err := os.Mkdir(made, 0o700); err != nil {
		l.t.Fatal(err)
	}
	for name, content := range map[string]string{"facts.json": facts, "sent": ""} {
		if err := os.WriteFile(filepath.Join(made, name), []byte(content), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := os.Chtimes(made, at, at); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(made, l.runDir(run)); err != nil {
		l.t.Fatal(err)
	}
}

// TestFactsAreThoseOfTheLatestRun: the answer contains the facts of the latest run,
// and only the named ones.
func TestFactsAreThoseOfTheLatestRun(t *testing.T) {
	var known []map[string]any
	l, _ := controlled(t, func(q policy.Question) (bool, string) {
		if facts, ok := q.Facts(); ok {
			known = append(known, facts)
		}
		return true, "x"
	})
	for i, facts := range []string{`{"role":"old"}`, `{"role":"db","os":{"family":"Debian"}}`} {
		l.ran(facts, time.Unix(int64(1000+i), 0))
	}
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteFacts}); string(a.Facts) != `{"os":{"family":"Debian"},"role":"db"}` {
		t.Errorf("%s %s", a.Message, a.Facts)
	}
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteStatus, On: `facts.role == "db" && !has(facts.site)`}); a.Verdict != tutti.RemoteOK {
		t.Errorf("%+v", a)
	}
	if len(known) != 3 || known[0]["role"] != "db" {
		t.Errorf("the policy was told of %v", known)
	}
	large := `{"x":"` + strings.Repeat("x", 100<<10) + `"}`
	l.ran(large, time.Unix(2000, 0))
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteFacts}); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "name those") {
		t.Errorf("%.200v", a)
	}
}

// TestARunOfTuttiIsARun: the status shows a run of Tutti even before Puppet has taken its lock.
func TestARunOfTuttiIsARun(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	l := newLab(t, func(p *puppet) tutti.Result {
		close(begun)
		<-release
		return applies(p)
	})
	own := &ownPuppet{}
	l.start(func(o *agent.Options) { o.Local, o.Allow = own, allowAll })
	l.job()
	<-begun
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteStatus}); a.Status == nil || !a.Status.Applying || a.Status.Status != "applying a catalog" {
		t.Errorf("%+v", a)
	}
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteRun}); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "currently applying a catalog") {
		t.Errorf("%+v", a)
	}
	close(release)
}

// TestAnAgentWithoutPuppetIsSilent: the server reports an agent without Puppet as
// silent.
func TestAnAgentWithoutPuppetIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := controlled(t, nil)
		if a := l.ask(api.NodesQuestion{Action: tutti.RemoteStatus}); a.Verdict != tutti.RemoteSilent {
			t.Errorf("%+v", a)
		}
		if _, err := os.Stat(filepath.Join(l.dir, "runs")); err != nil {
			t.Error(err)
		}
	})
}
