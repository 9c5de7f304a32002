package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// TestComparesForAPuppetServer checks what a node says about the catalogs of a Puppet Server on it. A catalog that did not
// compile is no equal catalog.
func TestComparesForAPuppetServer(t *testing.T) {
	l, own := controlled(t, allowAll)
	ask := func(b string, nodes ...tutti.NodeName) api.NodeAnswer {
		t.Helper()
		return l.ask(api.NodesQuestion{Action: tutti.RemoteCompare, Served: &tutti.ServedQuestion{A: "production", B: b, Nodes: nodes}})
	}
	want := []tutti.ServedDiff{
		{Node: "bad-01", Failed: map[string]string{"production": "no class in production", "branch": "no class in branch"}},
		{Node: "web-01", Diff: &tutti.CatalogDiff{Changes: []tutti.CatalogChange{
			{Kind: tutti.ChangeChanged, Resource: "File[/x]", Parameter: "content", Text: "production → branch"},
		}}},
	}
	if diff := cmp.Diff(want, ask("branch", "web-01", "bad-01", "web-01").Served); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	want[1].Diff = &tutti.CatalogDiff{Changes: []tutti.CatalogChange{}}
	want[0].Failed = map[string]string{"production": "no class in production"}
	if diff := cmp.Diff(want, ask("production", "web-01", "bad-01").Served); diff != "" {
		t.Errorf("the same environment twice: -want +got\n%s", diff)
	}
	if a := ask("nowhere", "web-01"); a.Verdict != tutti.RemoteFailed || !strings.Contains(a.Message, "environment nowhere: no such environment") {
		t.Errorf("an environment that is not there: %+v", a)
	}
	own.unknown = true
	if got := ask("production", "web-01").Served[0].Diff; got == nil || len(got.Changes) != 1 || got.Changes[0].Text != tutti.ContentUnknown {
		t.Errorf("files whose content nobody knows: %+v", got)
	}
}

// TestAComparisonThatIsTooLarge: the answer has the comparisons for which it has room, at least one.
func TestAComparisonThatIsTooLarge(t *testing.T) {
	l, own := controlled(t, allowAll)
	own.many = 300
	a := l.ask(api.NodesQuestion{Action: tutti.RemoteCompare, Served: &tutti.ServedQuestion{A: "production", B: "branch", Nodes: []tutti.NodeName{"web-01", "web-02", "web-03", "web-04"}}})
	if n := len(a.Served); a.Verdict != tutti.RemoteOK || n == 0 || n == 4 || a.Served[0].Diff == nil || len(a.Served[0].Diff.Changes) != 300 {
		t.Errorf("%s %s: %d comparisons", a.Verdict, a.Message, n)
	}
}
