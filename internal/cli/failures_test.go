package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The function `broken` returns the progress of a job in which no node can compile. Each message contains the name
// of its node. Two nodes fail at other places than the rest: the last node at another line, and the node before it
// at another column.
func broken(nodes int) (*progress, []string) {
	p := newProgress()
	var names []tutti.NodeName
	for i := range nodes {
		names = append(names, tutti.NodeName(fmt.Sprintf("node-%02d", i+1)))
	}
	plan := tutti.Plan{Name: "deploy", Steps: []tutti.Step{{Name: "all", Run: &tutti.RunStep{}}}}
	var live []string
	seq := uint64(0)
	tell := func(body tutti.Body) {
		seq++
		e := tutti.Event{Seq: seq, At: began, Body: body}
		p.apply(api.Watched{Event: &e})
		live = append(live, linesOf(p, e)...)
	}
	tell(&tutti.JobStarted{Job: "deploy-1", Plan: plan, Mode: tutti.ModeApply, Targets: map[tutti.StepName][]tutti.NodeName{"all": names}})
	for i, n := range names {
		run := tutti.RunID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		tell(order(run, n, "all", 1))
		r := result(run, tutti.Failed, 1, 4)
		line, column := 3, 5
		switch i {
		case nodes - 1:
			line = 9
		case nodes - 2:
			column = 12
		}
		r.Reason, r.Message = tutti.BecauseCompile, "Syntax error at 'ensure' on node "+string(n)
		r.Failures = []tutti.Failure{{File: "/srv/environments/production/manifests/site.pp", Line: line, Column: column, Message: r.Message}}
		tell(&tutti.RunFinished{Result: r})
	}
	return p, live
}

// TestTheSameFailureIsSaidOnce checks the live view, job show, and the groups of job show.
func TestTheSameFailureIsSaidOnce(t *testing.T) {
	p, live := broken(12)
	var shown, groups bytes.Buffer
	printJob(&shown, p.job(), began.Add(time.Minute))
	printUnreported(&groups, p.job())
	const first, other = "Syntax error at 'ensure' on node node-01 (manifests/site.pp:3:5)", "Syntax error at 'ensure' on node node-12 (manifests/site.pp:9:5)"
	const column = "Syntax error at 'ensure' on node node-11 (manifests/site.pp:3:12)"
	for where, text := range map[string]string{"live": strings.Join(live, "\n"), "job show": shown.String()} {
		for says, want := range map[string]int{first: 1, other: 1, column: 1, "the same as node-01": 9, "Syntax error": 3} {
			if got := strings.Count(text, says); got != want {
				t.Errorf("%s says %q %d times, want %d:\n%s", where, says, got, want, text)
			}
		}
	}
	want := `
failures before there was a report
  failed:compile on 10 nodes: node-01, node-02, node-03, node-04, node-05, node-06, node-07, node-08 and 2 more
      ` + first + `
  failed:compile on 1 node: node-11
      ` + column + `
  failed:compile on 1 node: node-12
      ` + other + "\n"
	if diff := cmp.Diff(want, groups.String()); diff != "" {
		t.Errorf("job show --changes: -want +got\n%s", diff)
	}
}

// TestACycleIsShownWhole checks that a dependency cycle is printed with its path, in one line.
func TestACycleIsShownWhole(t *testing.T) {
	const message = "Found 1 dependency cycle:\n(Exec[a] => Exec[b] => Exec[a])\\nTry the '--graph' option"
	const want = "Found 1 dependency cycle: (Exec[a] => Exec[b] => Exec[a]) Try the '--graph' option"
	node := api.NodeView{Node: "a", LastRun: run1, Outcome: tutti.Failed, Reason: tutti.BecauseCatalog, Message: message}
	for where, n := range map[string]api.NodeView{"as its message": node, "as its failure": func() api.NodeView {
		n := node
		n.Failures = []tutti.Failure{{Message: message}}
		return n
	}()} {
		var out bytes.Buffer
		printNode(&out, n, began)
		if got := strings.Count(out.String(), want); got != 1 || strings.Contains(out.String(), `\n`) {
			t.Errorf("%s: node show has the cycle %d times, want once:\n%s", where, got, out.String())
		}
	}
}
