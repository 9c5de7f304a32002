package observe_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/observe"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// The function `run` returns a good run that changed nothing and began some time ago. The functions in the argument
// `change` change this run.
func run(ago time.Duration, change ...func(*observe.Run)) observe.Run {
	r := observe.Run{ReportedAt: now.Add(-ago).Add(time.Minute), Foreign: &tutti.Foreign{
		Result:      tutti.Result{Outcome: tutti.Unchanged, StartedAt: now.Add(-ago)},
		Environment: "production", Puppet: "8.10.0",
	}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func fails(reason tutti.Reason, message string) func(*observe.Run) {
	return func(r *observe.Run) {
		r.Result.Outcome, r.Result.Reason, r.Result.Message = tutti.Failed, reason, message
	}
}

func corrects(r *observe.Run) {
	r.Result.Outcome, r.Result.Corrective, r.Result.Counts.Changed = tutti.Changed, true, 2
}

func noop(r *observe.Run)   { r.Noop = true }
func unseen(r *observe.Run) { r.Puppet, r.Environment, r.Unwatched = "", "", true }
func local(r *observe.Run)  { r.Local = &tutti.Local{} }

func TestJudge(t *testing.T) {
	const m, h = time.Minute, time.Hour
	disabled := &tutti.PuppetDisabled{By: "ada", Message: "kernel update", Since: now.Add(-3 * h)}
	type runs []observe.Run
	for _, tc := range []struct {
		reason string
		runs   runs
		change func(*observe.Node)
		want   api.NodeState
		since  time.Duration // ago
		why    string
	}{
		{"a recent good run", runs{run(20 * m)}, nil, api.NodeGood, 20 * m, ""},
		{"a run that changed something, once", runs{run(20*m, corrects), run(50 * m)}, nil, api.NodeGood, 20 * m, ""},
		{"no report at all", nil, nil, api.NodeUnknown, 9 * h, "no report"},
		{"only runs that show nothing", runs{run(m, noop), run(2*m, unseen), run(3*m, local)}, nil, api.NodeUnknown, 9 * h, "no report"},
		{"its agent is away", runs{run(20 * m)}, func(n *observe.Node) { n.Connected = false }, api.NodeUnknown, 30 * time.Second, "nothing is heard"},
		{"its agent never came", nil, func(n *observe.Node) { n.Connected, n.SeenAt = false, time.Time{} }, api.NodeUnknown, 9 * h, "nothing is heard"},
		{"Puppet is disabled, and its last run failed", runs{run(20*m, fails(tutti.BecauseCompile, "x"))}, func(n *observe.Node) { n.Puppet.Disabled = disabled },
			api.NodeDisabled, 3 * h, "disabled by ada: kernel update"},
		{"Puppet is disabled without a reason", nil, func(n *observe.Node) { n.Puppet.Disabled = &tutti.PuppetDisabled{Since: now.Add(-m)} },
			api.NodeDisabled, m, "disabled by an unknown user: no reason was given"},
		{"resources failed in three runs", runs{
			run(10*m, fails(tutti.BecauseResources, "1 resource failed")), run(40*m, fails(tutti.BecauseCompile, "y")), run(70*m, fails(tutti.BecauseResources, "z")), run(100 * m),
		}, nil, api.NodeFailed, 70 * m, "resources: 1 resource failed"},
		{"a cached catalog", runs{run(10*m, fails(tutti.BecauseCompile, "an old catalog was applied because the new one did not compile"))}, nil,
			api.NodeFailed, 10 * m, "compile: an old catalog"},
		{"it failed, and a noop run after that did not", runs{run(m, noop), run(10*m, fails(tutti.BecauseResources, "x"))}, nil, api.NodeFailed, 10 * m, "resources"},
		{"the server has no such environment", runs{run(10*m, fails(tutti.BecauseCompile, "Could not find a directory environment named 'stagin' anywhere in the path"))}, nil,
			api.NodeFailed, 10 * m, "environment: Could not find"},
		{"a person ran another environment", runs{run(10*m, func(r *observe.Run) { r.Environment = "canary" }), run(40 * m)},
			func(n *observe.Node) { n.Puppet.Environment = "production" }, api.NodeFailed, 10 * m, "of environment canary, and its puppet.conf names production"},
		{"a classifier chose the environment", runs{run(10*m, func(r *observe.Run) { r.Environment = "canary" })}, nil, api.NodeGood, 10 * m, ""},
		{"three intervals", runs{run(90 * m)}, nil, api.NodeGood, 90 * m, ""},
		{"more than three intervals", runs{run(91 * m)}, nil, api.NodeSilent, 91 * m, "has not run for more than 1h30m0s, and the default of runinterval is: every 30m0s"},
		{"more than three intervals of puppet.conf", runs{run(5 * h)}, func(n *observe.Node) { n.Puppet.Every = 2 * h }, api.NodeGood, 5 * h, ""},
		{"the fleet file knows better than puppet.conf", runs{run(5 * h)}, func(n *observe.Node) { n.Puppet.Every, n.Every = 2*h, h }, api.NodeSilent, 5 * h, "runs_every: every 1h0m0s"},
		{"a failed run of long ago", runs{run(5*h, fails(tutti.BecauseResources, "x"))}, nil, api.NodeFailed, 5 * h, "resources"},
		{"each run corrects", runs{run(10*m, corrects), run(40*m, corrects), run(70*m, corrects), run(100*m, corrects), run(130 * m)}, nil,
			api.NodeDrifting, 100 * m, "2 resources in the last run"},
		{"two runs corrected", runs{run(10*m, corrects), run(40*m, corrects)}, nil, api.NodeGood, 10 * m, ""},
		{"one of three did not correct", runs{run(10*m, corrects), run(40 * m), run(70*m, corrects), run(100*m, corrects)}, nil, api.NodeGood, 10 * m, ""},
		{"the node's clock is a year behind, and the report is news", runs{run(10*m, func(r *observe.Run) {
			r.Ago, r.Result.StartedAt, r.ReportedAt = 2*m, now.AddDate(-1, 0, 0), now.Add(-8*m)
		})}, nil, api.NodeGood, 10 * m, ""},
		{"the node's clock is a year ahead", runs{run(10*m, func(r *observe.Run) { r.Result.StartedAt, r.ReportedAt = now.AddDate(1, 0, 0), now.Add(-2*h) })}, nil,
			api.NodeSilent, 2 * h, "every 30m0s"},
		{"an agent that does not report Puppet's files", runs{run(10 * m)}, func(n *observe.Node) { n.Puppet = nil }, api.NodeUnknown, 10 * m, "whether Puppet is disabled"},
		{"such an agent, and a failed run", runs{run(10*m, fails(tutti.BecauseResources, "x"))}, func(n *observe.Node) { n.Puppet = nil }, api.NodeFailed, 10 * m, "resources"},
	} {
		n := observe.Node{Now: now, Connected: true, SeenAt: now.Add(-30 * time.Second), JoinedAt: now.Add(-9 * h), Puppet: &tutti.PuppetFiles{}, Runs: tc.runs}
		if tc.change != nil {
			tc.change(&n)
		}
		got := observe.Judge(n)
		if got.State != tc.want || !got.Since.Equal(now.Add(-tc.since)) || !strings.Contains(got.Why, tc.why) || (got.Why == "") != (tc.want == api.NodeGood) {
			t.Errorf("%s: %s since %s: %q; want %s since %s: %q", tc.reason, got.State, now.Sub(got.Since), got.Why, tc.want, tc.since, tc.why)
		}
	}
}
