package selector_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/selector"
)

// If nobody knows whether a node is in a group, an expression that depends on it is an error for this node.
func TestUndecidedGroups(t *testing.T) {
	node := selector.Of(api.NodeView{Node: "a", Groups: []tutti.GroupName{"web"}, Matches: []tutti.Match{
		{Group: "debian"}, {Group: "redhat", Unknown: "no facts"}, {Group: "suse", Unknown: "no facts"},
	}})
	const redhat = "nobody knows whether the node is in group redhat: no facts"
	for text, want := range map[string]string{
		`"web" in groups`:                        "yes",
		`"debian" in groups`:                     "yes",
		`"db" in groups`:                         "no",
		`!("db" in groups)`:                      "yes",
		`"redhat" in groups`:                     redhat,
		`!("redhat" in groups)`:                  redhat,
		`"suse" in groups`:                       "group suse: no facts",
		`"redhat" in groups || node == "a"`:      "yes",
		`"redhat" in groups && node == "b"`:      "no",
		`groups.exists(g, g == "debian")`:        "yes",
		`groups.exists(g, g == "redhat")`:        redhat,
		`groups.exists(g, g.startsWith("x"))`:    redhat,
		`groups.all(g, g.startsWith("x"))`:       "no",
		`groups.all(g, size(g) > 1)`:             redhat,
		`size(groups) == 2`:                      redhat,
		`groups == ["debian", "web"]`:            redhat,
		`["debian", "web"] == groups`:            redhat,
		`groups[0] == "debian"`:                  redhat,
		`groups + ["x"] == ["x"]`:                redhat,
		`["x"] + groups == ["x"]`:                redhat,
		`groups.filter(g, g == "x").size() == 0`: "nobody knows whether the node is in group",
		`groups.map(g, g).size() == 2`:           redhat,
		`groups.exists_one(g, g == "web")`:       "nobody knows whether the node is in group",
	} {
		s, err := selector.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		answer, err := s.Decide(node, nil, now)
		got := "no"
		if answer == selector.Yes {
			got = "yes"
		}
		if err != nil {
			got = err.Error()
		}
		if got != want && (want == "yes" || want == "no" || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	r, err := selector.ParseRow("facts", `"redhat" in groups`)
	if err != nil {
		t.Fatal(err)
	}
	if yes, err := r.Holds(node, map[string]any{}, nil, now); err == nil || yes || !strings.Contains(err.Error(), redhat) {
		t.Errorf("a row: %t, %v", yes, err)
	}
}
