package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

var (
	askPort     = tutti.Query{Kind: tutti.QueryValue, Key: "db/port"}
	askTune     = tutti.Query{Kind: tutti.QueryHiera, Key: "web::tune"}
	askDatabase = tutti.Query{Kind: tutti.QueryCollect, Type: "Database", Filter: json.RawMessage(`["=","tag","main"]`)}
	inWeb       = tutti.Place{Resource: "Class[Web]", File: "/etc/puppet/environments/production/modules/web/manifests/init.pp", Line: 7}
)

func ranIn(run tutti.RunID, node tutti.NodeName, job tutti.JobID) *tutti.RunView {
	return &tutti.RunView{
		Run: run, Node: node, Job: job, Step: "converge", Plan: "converge", By: "operator:ada", Mode: tutti.ModeApply,
		Outcome: tutti.Changed, EndedAt: began.Add(-time.Hour),
	}
}

// TestExplanations prints what people are told.
func TestExplanations(t *testing.T) {
	time.Local = time.UTC
	digest := tutti.DigestOf(nil)
	byItself := ranIn(run2, "db-01", "converge-7")
	byItself.By, byItself.OtherCode, byItself.Because = "server", true, []tutti.Query{askTune}
	byItself.Cause = "web::size set by ada"
	published := tutti.Cause{Seq: 9, At: began.Add(-time.Minute), By: "node:db-01", Key: "db/port", Run: byItself}
	stale := tutti.NodeStanding{State: tutti.NodeStale, Needs: "apply", Why: `value "db/port" has changed since it was read`,
		Since: began.Add(-time.Minute), Run: ranIn(run1, "web-01", "converge-6")}
	read := tutti.Read{Query: askPort, Found: true, Digest: digest, At: inWeb}
	var out bytes.Buffer
	for _, tc := range []struct {
		caption string
		print   func()
	}{
		{"a node that is good", func() {
			standing := tutti.NodeStanding{State: tutti.NodeGood, Needs: "nothing", Since: began.Add(-time.Hour), Run: ranIn(run1, "web-01", "converge-6")}
			standing.Run.Outcome, standing.Run.Stopped, standing.Run.Proved = "", true, true
			printNodeExplanation(&out, tutti.NodeExplanation{Node: "web-01", Reads: 1, Standing: standing, Basis: &tutti.NodeBasis{
				Environment: "production", Code: digest, Puppet: "8.10.0", Facts: digest, FactsAt: began.Add(-time.Minute), Machine: began.Add(-24 * time.Hour),
			}}, began)
		}},
		{"a node that is stale", func() {
			printNodeExplanation(&out, tutti.NodeExplanation{
				Node: "web-01", Reads: 3, Standing: stale, Active: &tutti.RunView{Run: run3, Node: "web-01", Job: "converge-8", Mode: tutti.ModeApply, Phase: "held at its gate"},
				Changed: []tutti.ChangedRead{
					{Query: askPort, At: inWeb, Was: digest, Causes: []tutti.Cause{published}},
					{Query: askDatabase, Causes: []tutti.Cause{{At: began.Add(-time.Second), By: "node:db-01", Unknown: true,
						Run: &tutti.RunView{Run: run2, Node: "db-01"}, Added: []string{"Database[a]"}, Altered: strings.Fields("1 2 3 4 5 6 7 8 9 10")}}},
					{Query: askTune},
				},
				Before: []tutti.WaitedFor{{Wait: tutti.Wait{Query: askPort}, Publishers: []tutti.NodeName{"db-01", "db-02"}}},
			}, began)
		}},
		{"a node that waits", func() {
			printNodeExplanation(&out, tutti.NodeExplanation{
				Node: "web-01", Standing: tutti.NodeStanding{State: tutti.NodeWaiting, Needs: "apply", Why: "it waits: no port"},
				Failures: []tutti.Failure{{Message: "no port"}},
				Waits: []tutti.WaitedFor{
					{Wait: tutti.Wait{Query: askPort, At: inWeb}, Answered: true, Publishers: []tutti.NodeName{"db-01"}, Before: []tutti.Cause{published}},
					{Wait: tutti.Wait{Query: askTune}},
				},
			}, began)
		}},
		{"nodes that never ran, and that are suspect", func() {
			printNodeExplanation(&out, tutti.NodeExplanation{Node: "new-01", Standing: tutti.NodeStanding{State: tutti.NodeNew, Needs: "apply", Since: began}}, began)
			printNodeExplanation(&out, tutti.NodeExplanation{Node: "web-01", Standing: tutti.NodeStanding{State: tutti.NodeSuspect, Needs: "proof", Why: "its last run had other code"}}, began)
		}},
		{"a node's record", func() {
			printStanding(&out, tutti.NodeDetail{
				Standing: stale, Recorded: run1, Keys: 12, Absent: 11, Exports: []string{"Web[main]"}, Published: map[string]tutti.Digest{"web/ready": digest},
				Reads: []tutti.ReadView{
					{Read: read, Changed: true, ChangedAt: began.Add(-time.Minute)}, {Read: tutti.Read{Query: askDatabase, Found: true, Digest: digest}},
					{Read: tutti.Read{Query: askTune}, Changed: true},
				},
			}, began)
			printStanding(&out, tutti.NodeDetail{Standing: tutti.NodeStanding{State: tutti.NodeNew, Needs: "apply", Why: "it never ran"}}, began)
		}},
		{"a value", func() {
			value := tutti.ValueView{Key: "node/web-01/hiera/web::tune", Value: json.RawMessage("3"), Owner: "db-01", By: "node:db-01", At: began.Add(-time.Minute)}
			printValueExplanation(&out, tutti.ValueExplanation{
				Key: value.Key, Value: &value, Run: byItself, Declared: []tutti.NodeName{"db-01"}, Readers: []tutti.NodeName{"web-02"},
				Hiera: &tutti.HieraFeed{Key: "web::tune", Node: "web-01", Readers: []tutti.NodeName{"web-01"}},
				Versions: []tutti.ValueVersion{
					{At: began.Add(-time.Minute), By: "node:db-01", Value: json.RawMessage("3"), Job: "converge-7", Run: run2},
					{At: began.Add(-time.Hour), By: "operator:ada", Unset: true},
				},
			}, began)
			printValueExplanation(&out, tutti.ValueExplanation{Key: "shared/hiera/a", Hiera: &tutti.HieraFeed{Key: "a", Hidden: []tutti.NodeName{"web-01"}}}, began)
		}},
		{"resources", func() {
			printResourceExplanation(&out, tutti.ResourceExplanation{
				Node: "web-01", Resource: "File[/etc/web.conf]", Run: ranIn(run1, "web-01", "converge-6"), Reported: true, Status: "changed", Place: inWeb,
				Containers: []string{"Class[Web]", "Web::Site[main]"},
				Events:     []tutti.ResourceEvent{{Property: "content", Status: "success", Message: "content changed", Old: "{md5}1", Corrective: true}},
				Exported:   []tutti.Exported{{Node: "db-01", Place: inWeb, Run: byItself, Read: tutti.Read{Query: askDatabase, At: inWeb}}},
				Reads:      []tutti.Read{read}, Keys: []tutti.KeyRead{{Key: "web::tune", At: inWeb}, {Key: "web::port", Found: true, At: inWeb}},
			}, began)
			printResourceExplanation(&out, tutti.ResourceExplanation{Node: "web-01", Resource: "File[/etc/motd]", Run: ranIn(run1, "web-01", "converge-6")}, began)
			printResourceExplanation(&out, tutti.ResourceExplanation{Node: "web-01", Resource: "Exec[x]", Run: ranIn(run1, "web-01", ""), Reported: true, Status: "skipped"}, began)
		}},
	} {
		fmt.Fprintf(&out, "# %s\n", tc.caption)
		tc.print()
		fmt.Fprintln(&out)
	}
	golden(t, "explain.txt", out.String())
}

// TestTheGraph prints a graph as a table and for Graphviz.
func TestTheGraph(t *testing.T) {
	nodes := []tutti.NodeName{"a", "b", "c"}
	g := tutti.Graph{
		Nodes: []tutti.GraphNode{{Node: "a", Good: true}, {Node: "b"}, {Node: "c", Good: true}, {Node: "d", Good: true}},
		Edges: []tutti.GraphEdge{
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
