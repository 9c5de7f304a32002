package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

var (
	askPort     = tutti.Query{Kind: tutti.QueryValue, Key: "db/port"}
	askTune     = tutti.Query{Kind: tutti.QueryHiera, Key: "web::tune"}
	askDatabase = tutti.Query{Kind: tutti.QueryCollect, Type: "Database", Filter: json.RawMessage(`["=","tag","main"]`)}
	inWeb       = tutti.Place{Resource: "Class[Web]", File: "/etc/puppet/environments/production/modules/web/manifests/init.pp", Line: 7}
)

func ranIn(run tutti.RunID, node tutti.NodeName, job tutti.JobID) *api.RunView {
	return &api.RunView{
		Run: run, Node: node, Job: job, Step: "converge", Plan: "converge", By: "operator:ada", Mode: tutti.ModeApply,
		Outcome: tutti.Changed, EndedAt: began.Add(-time.Hour),
	}
}

// TestExplanations prints the explanations that people get.
func TestExplanations(t *testing.T) {
	time.Local = time.UTC
	digest := tutti.DigestOf(nil)
	byItself := ranIn(run2, "db-01", "converge-7")
	byItself.By, byItself.OtherCode, byItself.Because = "server", true, []tutti.Query{askTune}
	byItself.Cause = "web::size set by ada"
	published := api.Cause{Seq: 9, At: began.Add(-time.Minute), By: "node:db-01", Key: "db/port", Run: byItself}
	stale := api.NodeStanding{State: api.NodeStale, Needs: "apply", Why: `value "db/port" has changed since it was read`,
		Since: began.Add(-time.Minute), Run: ranIn(run1, "web-01", "converge-6")}
	read := tutti.Read{Query: askPort, Found: true, Digest: digest, At: inWeb}
	var out bytes.Buffer
	for _, tc := range []struct {
		caption string
		print   func()
	}{
		{"a node that is good", func() {
			standing := api.NodeStanding{State: api.NodeGood, Needs: "nothing", Since: began.Add(-time.Hour), Run: ranIn(run1, "web-01", "converge-6")}
			standing.Run.Outcome, standing.Run.Stopped, standing.Run.Proved = "", true, true
			printNodeExplanation(&out, api.NodeExplanation{Node: "web-01", Reads: 1, Standing: standing, Basis: &api.NodeBasis{
				Environment: "production", Code: digest, Puppet: "8.10.0", Facts: digest, FactsAt: began.Add(-time.Minute), Machine: began.Add(-24 * time.Hour),
			}}, began)
		}},
		{"a node that is stale", func() {
			printNodeExplanation(&out, api.NodeExplanation{
				Node: "web-01", Reads: 3, Standing: stale, Active: &api.RunView{Run: run3, Node: "web-01", Job: "converge-8", Mode: tutti.ModeApply, Phase: "held at its gate"},
				Changed: []api.ChangedRead{
					{Query: askPort, At: inWeb, Was: digest, Causes: []api.Cause{published}},
					{Query: askDatabase, Causes: []api.Cause{{At: began.Add(-time.Second), By: "node:db-01", Unknown: true,
						Run: &api.RunView{Run: run2, Node: "db-01"}, Added: []string{"Database[a]"}, Altered: strings.Fields("1 2 3 4 5 6 7 8 9 10")}}},
					{Query: askTune},
				},
				Before: []api.WaitedFor{{Wait: tutti.Wait{Query: askPort}, Publishers: []tutti.NodeName{"db-01", "db-02"}}},
			}, began)
		}},
		{"a node that waits", func() {
			printNodeExplanation(&out, api.NodeExplanation{
				Node: "web-01", Standing: api.NodeStanding{State: api.NodeWaiting, Needs: "apply", Why: "it waits: no port"},
				Failures: []tutti.Failure{{Message: "no port"}},
				Waits: []api.WaitedFor{
					{Wait: tutti.Wait{Query: askPort, At: inWeb}, Answered: true, Publishers: []tutti.NodeName{"db-01"}, Before: []api.Cause{published}},
					{Wait: tutti.Wait{Query: askTune}},
				},
			}, began)
		}},
		{"nodes that never ran, and that are suspect", func() {
			printNodeExplanation(&out, api.NodeExplanation{Node: "new-01", Standing: api.NodeStanding{State: api.NodeNew, Needs: "apply", Since: began}}, began)
			printNodeExplanation(&out, api.NodeExplanation{Node: "web-01", Standing: api.NodeStanding{State: api.NodeSuspect, Needs: "proof", Why: "its last run had other code"}}, began)
		}},
		{"a node's record", func() {
			printStanding(&out, api.NodeDetail{
				Standing: stale, Recorded: run1, Keys: 12, Absent: 11, Exports: []string{"Web[main]"}, Published: map[string]tutti.Digest{"web/ready": digest},
				Reads: []api.ReadView{
					{Read: read, Changed: true, ChangedAt: began.Add(-time.Minute)}, {Read: tutti.Read{Query: askDatabase, Found: true, Digest: digest}},
					{Read: tutti.Read{Query: askTune}, Changed: true},
				},
			}, began)
			printStanding(&out, api.NodeDetail{Standing: api.NodeStanding{State: api.NodeNew, Needs: "apply", Why: "it never ran"}}, began)
		}},
		{"a value", func() {
			value := api.ValueView{Key: "node/web-01/hiera/web::tune", Value: json.RawMessage("3"), Owner: "db-01", By: "node:db-01", At: began.Add(-time.Minute)}
			printValueExplanation(&out, api.ValueExplanation{
				Key: value.Key, Value: &value, Run: byItself, Declared: []tutti.NodeName{"db-01"}, Readers: []tutti.NodeName{"web-02"},
				Hiera: &api.HieraFeed{Key: "web::tune", Node: "web-01", Readers: []tutti.NodeName{"web-01"}},
				Versions: []api.ValueVersion{
					{At: began.Add(-time.Minute), By: "node:db-01", Value: json.RawMessage("3"), Job: "converge-7", Run: run2},
					{At: began.Add(-time.Hour), By: "operator:ada", Unset: true},
				},
			}, began)
			printValueExplanation(&out, api.ValueExplanation{Key: "shared/hiera/a", Hiera: &api.HieraFeed{Key: "a", Hidden: []tutti.NodeName{"web-01"}}}, began)
		}},
		{"resources", func() {
			printResourceExplanation(&out, api.ResourceExplanation{
				Node: "web-01", Resource: "File[/etc/web.conf]", Run: ranIn(run1, "web-01", "converge-6"), Reported: true, Status: "changed", Place: inWeb,
				Containers: []string{"Class[Web]", "Web::Site[main]"},
				Events:     []api.ResourceEvent{{Property: "content", Status: "success", Message: "content changed", Old: "{md5}1", Corrective: true}},
				Exported:   []api.Exported{{Node: "db-01", Place: inWeb, Run: byItself, Read: tutti.Read{Query: askDatabase, At: inWeb}}},
				Reads:      []tutti.Read{read}, Keys: []tutti.KeyRead{{Key: "web::tune", At: inWeb}, {Key: "web::port", Found: true, At: inWeb}},
			}, began)
			printResourceExplanation(&out, api.ResourceExplanation{Node: "web-01", Resource: "File[/etc/motd]", Run: ranIn(run1, "web-01", "converge-6")}, began)
			printResourceExplanation(&out, api.ResourceExplanation{Node: "web-01", Resource: "Exec[x]", Run: ranIn(run1, "web-01", ""), Reported: true, Status: "skipped"}, began)
		}},
	} {
		fmt.Fprintf(&out, "# %s\n", tc.caption)
		tc.print()
		fmt.Fprintln(&out)
	}
	golden(t, "explain.txt", out.String())
}

// TestTheGraph prints a graph as a table, and in the format of Graphviz.
func TestTheGraph(t *testing.T) {
	nodes := []tutti.NodeName{"a", "b", "c"}
	g := api.Graph{
		Nodes: []api.GraphNode{{Node: "a", Good: true}, {Node: "b"}, {Node: "c", Good: true}, {Node: "d", Good: true}},
		Edges: []api.GraphEdge{
			{From: nodes[:1], To: nodes[1:2], Questions: []tutti.Query{askPort, askTune}, Hard: true},
			{From: nodes, To: nodes, Questions: []tutti.Query{askDatabase}},
			{From: nodes[:2], To: nodes[2:], Explicit: true},
		},
	}
	var out bytes.Buffer
	if err := printGraph(&out, g); err != nil {
		t.Fatal(err)
	}
	if err := printDot(&out, g); err != nil {
		t.Fatal(err)
	}
	golden(t, "graph.txt", out.String())
}
