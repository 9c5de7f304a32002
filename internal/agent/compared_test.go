package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// compilesFor is a Puppet that leaves its catalog if the order is for a diff.
func compilesFor(p *puppet) tutti.Result {
	if p.spec.Order.Diff {
		catalog := `{"resources": {"File[/x]": {"tags": [], "parameters": {"content": "` + string(p.spec.Order.Job) + `"}}}}`
		if err := os.WriteFile(filepath.Join(p.dir, agent.ComparedFile), []byte(catalog), 0o600); err != nil {
			return tutti.Result{Outcome: tutti.Failed, Message: err.Error()}
		}
	}
	return applies(p)
}

// TestADiffsCodeStaysApart: a node that compiles for a diff keeps its environment's link and the counter of begun code. It
// compares the catalogs of two jobs.
func TestADiffsCodeStaysApart(t *testing.T) {
	l := newLab(t, compilesFor)
	l.pushAs(site("begun"), counted(3))
	l.start(func(o *agent.Options) { o.Local, o.Allow = &ownPuppet{}, allowAll })
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Fatalf("result %+v", got)
	}
	state := func() string {
		link, err := os.Readlink(filepath.Join(l.dir, "environments", "production"))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(filepath.Join(l.dir, agent.SignedFile))
		if err != nil {
			t.Fatal(err)
		}
		return link + " " + string(kept)
	}
	before := state()
	var jobs []tutti.JobID
	for _, manifest := range []string{"# one", "# two"} {
		job, err := l.fleet.StartDiff(manifest, "db-01")
		if err != nil {
			t.Fatal(err)
		}
		if got := l.end(job); !got.Stopped {
			t.Fatalf("result %+v", got)
		}
		jobs = append(jobs, job)
	}
	if after := state(); after != before {
		t.Errorf("after the diff: %s, want %s", after, before)
	}
	content, err := os.ReadFile(filepath.Join(l.dir, "diff", "production", servertest.CodePath))
	if err != nil || string(content) != "# two" {
		t.Errorf("the diff's code is %q, %v", content, err)
	}
	a := l.ask(api.NodesQuestion{Action: tutti.RemoteDiff, Jobs: jobs})
	if a.Diff == nil || len(a.Diff.Changes) != 1 || a.Diff.Changes[0].Text != string(jobs[0])+" → "+string(jobs[1]) {
		t.Errorf("answer %+v", a)
	}
	if a := l.ask(api.NodesQuestion{Action: tutti.RemoteDiff, Jobs: []tutti.JobID{jobs[0], "diff-99"}}); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "diff-99") {
		t.Errorf("a job that the node does not have: %+v", a)
	}
	checked := func(question api.NodesQuestion) api.NodeAnswer {
		question.Action = tutti.RemoteCheck
		return l.ask(question)
	}
	want := &tutti.CodeChecked{Problems: []tutti.CodeProblem{
		{Level: tutti.ProblemError, File: servertest.CodePath, Line: 2, Message: "# two"}, {Level: tutti.ProblemWarning, File: servertest.CodePath, Line: 1, Message: "# two"},
	}}
	if diff := cmp.Diff(want, checked(api.NodesQuestion{Jobs: jobs[1:]}).Check); diff != "" {
		t.Errorf("a check of the code: -want +got\n%s", diff)
	}
	if a := checked(api.NodesQuestion{}); a.Verdict != tutti.RemoteOK || a.Check != nil {
		t.Errorf("whether it can check code: %+v", a)
	}
	tree, err := os.Readlink(filepath.Join(l.dir, "diff", "production"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "diff", tree, servertest.CodePath), []byte("# three"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := checked(api.NodesQuestion{Jobs: jobs[1:]}); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "does not have the code") {
		t.Errorf("a check of other code than that of the job: %+v", a)
	}
}

// TestADiffNeverApplies: a node refuses an order for a diff that would do more than compile.
func TestADiffNeverApplies(t *testing.T) {
	for reason, change := range map[string]func(*tutti.Order){
		"apply":           func(o *tutti.Order) { o.Mode = tutti.ModeApply },
		"noop":            func(o *tutti.Order) { o.Mode = tutti.ModeNoop },
		"a Puppet Server": func(o *tutti.Order) { o.Program, o.Code = tutti.ProgramAgent, "" },
		"tags":            func(o *tutti.Order) { o.Tags = []string{"x"} },
	} {
		t.Run(reason, func(t *testing.T) {
			l := newLab(t, compilesFor)
			l.tampered(func(c *wire.Claimed) {
				if c.Order != nil {
					change(c.Order)
				}
			})
			l.line.answer = wire.OpClaim
			l.start()
			l.line.settle()
			job, err := l.fleet.StartDiff("# other", "db-01")
			if err != nil {
				t.Fatal(err)
			}
			if got := l.end(job); got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, "a diff only compiles") || l.ruby.started() != 0 {
				t.Errorf("result %+v after %d starts, want that it is refused", got, l.ruby.started())
			}
		})
	}
}

// TestADiffNeedsAPermissionThatLasts: a node does not compile code for a diff without a valid permission, whatever the
// server sends.
func TestADiffNeedsAPermissionThatLasts(t *testing.T) {
	const manifest = "# other"
	valid := servertest.Permit("production", manifest, time.Now().Add(time.Hour))
	var m tutti.CodeManifest
	if err := json.Unmarshal(valid.Manifest, &m); err != nil {
		t.Fatal(err)
	}
	stranger := valid
	stranger.Statement = new(servertest.State(tutti.StatementCompile, tutti.SignedCompile{
		Fleet: servertest.FleetID, Environment: "production", Digest: tutti.DigestOf(valid.Manifest), Until: time.Now().Add(time.Hour),
	}, "somebody"))
	elsewhere := valid
	elsewhere.Statement = new(servertest.State(tutti.StatementCompile, tutti.SignedCompile{
		Fleet: servertest.FleetID, Environment: "staging", Digest: tutti.DigestOf(valid.Manifest), Until: time.Now().Add(time.Hour),
	}, "operator"))
	for _, tc := range []struct {
		reason string
		given  tutti.SignedCode
		says   string
	}{
		{"a permission that has ended", servertest.Permit("production", manifest, time.Now().Add(-time.Second)), "has ended"},
		{"a permission for more than a day", servertest.Permit("production", manifest, time.Now().Add(25*time.Hour)), "is the clock right"},
		{"a permission to apply", servertest.SignAs(m, 9), "not signed"},
		{"a permission of somebody else", stranger, "not signed"},
		{"a permission for another environment", elsewhere, "for environment staging"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, compilesFor)
			l.line.alter = func(op string, reply []byte) []byte {
				if op != wire.OpCode {
					return reply
				}
				raw, err := json.Marshal(tc.given)
				if err != nil {
					t.Error(err)
				}
				return raw
			}
			l.line.answer = wire.OpCode
			l.start()
			l.line.settle() // a node that is not connected does not take part
			job, err := l.fleet.StartDiff(manifest, "db-01")
			if err != nil {
				t.Fatal(err)
			}
			got := l.end(job)
			if got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, tc.says) || l.ruby.started() != 0 {
				t.Errorf("result %+v after %d starts, want that it is refused: %q", got, l.ruby.started(), tc.says)
			}
		})
	}
}
