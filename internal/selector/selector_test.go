package selector_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/selector"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var web = selector.Node{
	Name: "web-01.example.net", Groups: []tutti.GroupName{"prod", "web"}, Outcome: tutti.Failed, Reason: tutti.BecauseResources,
	LastRun: now.Add(-3 * time.Hour), Connected: true, Paused: true, Agent: "0.5.0", Puppet: "8.10.0",
}

const facts = `{"os":{"family":"Debian","release":{"major":"12"}},"processors":{"count":4},"load":0.5,"role":"db"}`

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		text    string
		without selector.Answer // without facts
		with    selector.Answer
		err     string
		reason  string
	}{
		{"", selector.Yes, selector.Yes, "", "nothing said: every node"},
		{"true", selector.Yes, selector.Yes, "", "every node"},
		{`"web" in groups`, selector.Yes, selector.Yes, "", "a group"},
		{`"we" in groups`, selector.No, selector.No, "", "groups are compared whole"},
		{`node.endsWith(".example.net") && node != "web"`, selector.Yes, selector.Yes, "", "the name"},
		{`outcome == "failed" && reason == "resources"`, selector.Yes, selector.Yes, "", "the last run"},
		{`now - last_run > duration("2h")`, selector.Yes, selector.Yes, "", "when that was"},
		{`now - last_run > duration("4h")`, selector.No, selector.No, "", "not so long ago"},
		{`connected && paused && !running`, selector.Yes, selector.Yes, "", "its state"},
		{`puppet.startsWith("8.") && agent == "0.5.0"`, selector.Yes, selector.Yes, "", "versions"},
		{`facts.os.family == "Debian"`, selector.NeedsFacts, selector.Yes, "", "facts must be asked for"},
		{`facts["os"]["release"].major == "12"`, selector.NeedsFacts, selector.Yes, "", "also by index"},
		{`"db" in groups && facts.os.family == "Debian"`, selector.No, selector.No, "", "the rest decides: nobody needs to be asked"},
		{`"web" in groups || facts.os.family == "Debian"`, selector.Yes, selector.Yes, "", "so does a yes"},
		{`facts.processors.count >= 4 && facts.processors.count < 4.5`, selector.NeedsFacts, selector.Yes, "", "numbers are compared as numbers"},
		{`facts.load < 1`, selector.NeedsFacts, selector.Yes, "", "also fractions"},
		{`has(facts.role) && facts.role == "db"`, selector.NeedsFacts, selector.Yes, "", "a fact that not all have"},
		{`has(facts.nope) && facts.nope == "db"`, selector.NeedsFacts, selector.No, "", "and this one has not"},
		{`facts.?nope.orValue("x") == "x"`, selector.NeedsFacts, selector.Yes, "", "or with a default"},
		{`facts.nope == "db"`, selector.NeedsFacts, selector.No, "has(facts.NAME)", "a fact that is not there is no no"},
		{`!(facts.nope == "db")`, selector.NeedsFacts, selector.No, "no such key: nope", "and no yes"},
		{`facts.exists(name, name == "role")`, selector.NeedsFacts, selector.Yes, "", "any fact"},
		{`[1,2,3,4,5,6,7,8].all(a,[1,2,3,4,5,6,7,8].all(b,[1,2,3,4,5,6,7,8].all(c,[1,2,3,4,5,6,7,8].all(d,[1,2,3,4,5,6,7,8].all(e,[1,2,3,4,5,6,7,8].all(f,a+b+c+d+e+f>0))))))`,
			selector.No, selector.No, "cost limit", "what costs too much ends"},
	} {
		s, err := selector.Parse(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		known, err := selector.ParseFacts([]byte(facts))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Decide(web, nil, now)
		if got != tc.without || err != nil && tc.err == "" {
			t.Errorf("%s: %s: without facts %v, %v; want %v", tc.reason, tc.text, got, err, tc.without)
		}
		got, err = s.Decide(web, known, now)
		if got != tc.with || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %s: with facts %v, %v; want %v, %q", tc.reason, tc.text, got, err, tc.with, tc.err)
		}
	}
}

func TestANodeThatNeverRanDidSoBeforeEverything(t *testing.T) {
	s, err := selector.Parse(`now - last_run > duration("1000h") && outcome == ""`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Decide(selector.Node{Name: "new"}, nil, now); got != selector.Yes || err != nil {
		t.Errorf("%v, %v; want yes", got, err)
	}
}

func TestFacts(t *testing.T) {
	for _, tc := range []struct {
		text  string
		names []string
		all   bool
	}{
		{`"web" in groups`, nil, false},
		{`facts.os.family == "a" || facts["role"] == "b" || has(facts.load) || facts.os.name == "c"`, []string{"load", "os", "role"}, false},
		{`facts.?x.orValue(1) == 1 || facts[?"y"].orValue(1) == 1`, []string{"x", "y"}, false},
		{`facts[node] == "x"`, nil, true},
		{`size(facts) > 3`, nil, true},
		{`"os" in facts`, nil, true},
	} {
		s, err := selector.Parse(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		names, all := s.Facts()
		if diff := cmp.Diff(tc.names, names); diff != "" || all != tc.all {
			t.Errorf("%s: all %t, want %t; -want +got\n%s", tc.text, all, tc.all, diff)
		}
	}
}

func TestBadSelectors(t *testing.T) {
	for _, tc := range []struct{ text, says string }{
		{"web", `"web" in groups`},
		{"node", "has to be true or false"},
		{`node = "web"`, "equal is written =="},
		{`node == 3`, "no matching overload"},
		{`groups.web`, "selector: ERROR: <input>:1"},
		{strings.Repeat("(", 2000) + "true" + strings.Repeat(")", 2000), "selector"},
		{`"` + strings.Repeat("x", selector.MaxText) + `" == node`, "at most 4096"},
		{"node == '\x00", "selector"},
	} {
		_, err := selector.Parse(tc.text)
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.60q: %v; want %q", tc.text, err, tc.says)
		}
	}
}

func TestParseFactsRefusesWhatAreNone(t *testing.T) {
	for _, raw := range []string{"", "null", "3", `["os"]`, `{"os":`} {
		if got, err := selector.ParseFacts([]byte(raw)); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%q: %v, %v", raw, got, err)
		}
	}
}

// FuzzSelector checks that any text is an expression or an error, and that each decision comes to an end.
func FuzzSelector(f *testing.F) {
	f.Add(`"web" in groups && facts.os.family == "Debian"`, facts)
	f.Add(`facts.a[0].matches("(a+)+$")`, `{"a":["aaaaaaaaaaaaaaaa!"]}`)
	f.Add(`now - last_run > duration("2h")`, `{}`)
	f.Fuzz(func(t *testing.T, text, raw string) {
		s, err := selector.Parse(text)
		if err != nil {
			if tutti.CodeOf(err) != tutti.CodeInvalid {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if _, err := s.Decide(web, nil, now); err != nil && tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Fatalf("%q: %v", text, err)
		}
		if known, err := selector.ParseFacts([]byte(raw)); err == nil {
			if got, _ := s.Decide(web, known, now); got == selector.NeedsFacts {
				t.Fatalf("%q with all facts: needs facts", text)
			}
		}
	})
}

// TestByName checks that ByName decides about expressions that depend only on the name. For other
// expressions ByName returns NeedsFacts.
func TestByName(t *testing.T) {
	for text, want := range map[string]selector.Answer{
		`true`: selector.Yes, `false`: selector.No,
		`node == "web-01"`: selector.Yes, `node == "web-02"`: selector.No, `node in ["web-01", "web-02"]`: selector.Yes, `node.startsWith("web-")`: selector.Yes,
		`"web" in groups`: selector.NeedsFacts, `facts.os.family == "Debian"`: selector.NeedsFacts, `connected`: selector.NeedsFacts, `outcome == "failed"`: selector.NeedsFacts,
		`last_run < now`: selector.NeedsFacts, `agent == puppet && reason == "" && !running && !paused`: selector.NeedsFacts,
		`node == "web-02" && connected`: selector.No, `node == "web-01" || connected`: selector.Yes, `node == "web-01" && connected`: selector.NeedsFacts,
	} {
		s, err := selector.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.ByName("web-01"); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
}
