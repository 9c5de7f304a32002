package fleet_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/dag"
	"github.com/tutti-project/tutti/internal/fleet"
)

// FuzzParse checks that Parse either returns a fleet that the server and its log can use, or refuses the fleet file. If
// Parse refuses the file, the error must say where the problems are.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/*/tutti.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			source, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(source)
		}
	}
	for _, source := range []string{
		"fleet: x\nplans: {p: {steps: [{wait: {value: a, equals: {a: [1, 1.0, -0, 0x10, 1e3, .5, ~, yes, \"\\u0000\", 2001-01-01]}}}]}}\n",
		"fleet: x\ngroups: {a: &a {nodes: [b]}, c: *a}\nplans: {p: {steps: [{run: a}, {run: a, per: node}, {run: c.d, after: run-a}]}}\n",
		"fleet: x\ngroups: {a: {joined: true}, b: {joined: true}}\norder: [{first: a, then: b}]\nreactive: !!bool True\nreaction: {window: 1s, safety: !!str never, reads: [{type: A::B, when: now}, {key: \"**\", when: window}]}\n",
		"fleet: x\norder: &o [{first: *o, then: *o}]\nreaction: &r {reads: [*r]}\nplans: {p: {steps: [{converge: &f fleet}, {converge: a.b, limit: 1}, {converge: *f}]}}\n",
		"a: &a [*a]\n", "fleet: &x {<<: *x}\n", "fleet: &f x\ngrants: &g [*g]\n", "--- !!map\nfleet: !!str x\nplans: {p: {steps: [{run: a, timeout: 1h, limit: 0x2}]}}\n",
	} {
		f.Add([]byte(source))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		got, err := fleet.Parse("f.yaml", source)
		if err != nil {
			checkProblems(t, err)
			if !cmp.Equal(got, tutti.Fleet{}) {
				t.Errorf("refused, and yet %+v", got)
			}
			return
		}
		checkFleet(t, got)
		raw, err := json.Marshal(got)
		var again tutti.Fleet
		if err != nil || json.Unmarshal(raw, &again) != nil {
			t.Fatalf("the log cannot keep it: %v", err)
		}
		for i, p := range got.Plans {
			targets, err := fleet.Resolve(got, map[tutti.GroupName][]tutti.NodeName{"a": {"x.y"}}, p)
			if err != nil && tutti.CodeOf(err) != tutti.CodeNotFound {
				t.Errorf("resolve: %v", err)
			}
			if a, b := fleet.Render(p, targets), fleet.Render(again.Plans[i], targets); a != b {
				t.Errorf("rendered from the log it is another plan:\n%s\n%s", a, b)
			}
		}
	})
}

var placeRE = regexp.MustCompile(`^f\.yaml:([1-9][0-9]*): .`)

func checkProblems(t *testing.T, err error) {
	t.Helper()
	if tutti.CodeOf(err) != tutti.CodeInvalid || len(err.Error()) > tutti.MaxErrorText {
		t.Errorf("code %q, %d bytes", tutti.CodeOf(err), len(err.Error()))
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !placeRE.MatchString(line) {
			t.Errorf("%q does not say where", line)
		}
	}
}

// checkFleet checks the properties of a fleet on which other packages depend.
func checkFleet(t *testing.T, f tutti.Fleet) {
	t.Helper()
	valid := func(err error) {
		if err != nil {
			t.Errorf("accepted: %v", err)
		}
	}
	known := map[string]bool{}
	for _, g := range f.Groups {
		valid(g.Name.Validate())
		known[string(g.Name)] = true
		for _, n := range g.Nodes {
			valid(n.Validate())
			known[string(n)] = true
		}
	}
	for _, g := range f.Grants {
		if !known[string(g.To)] {
			t.Errorf("a grant to nobody: %+v", g)
		}
		for _, p := range slices.Concat(g.Write, g.Read) {
			valid(tutti.ValidatePattern(p))
		}
		if len(g.Exports) > 0 {
			t.Errorf("a grant of before 0.3.0: %+v", g)
		}
		for _, e := range g.Types {
			valid(tutti.ValidateType(e.Type))
			if e.Dangers() != "" && !g.Dangerous || e.Defined && e.Native() {
				t.Errorf("accepted: %+v", g)
			}
		}
	}
	checkOrder(t, f.Order)
	if f.Reaction != nil {
		checkReaction(t, *f.Reaction)
	}
	for _, p := range f.Plans {
		valid(p.Name.Validate())
		if p.Name == api.ConvergePlan || p.Name == api.ShowPlan {
			t.Errorf("accepted: a plan %s", p.Name)
		}
		valid(p.Validate())
		checkPlan(t, p)
		for _, s := range p.Steps {
			valid(s.Name.Validate())
			if s.Converge != nil && s.Converge.Target != "" && !known[s.Converge.Target] && !strings.Contains(s.Converge.Target, ".") {
				t.Errorf("step %+v", s)
			}
			if s.Run != nil && !known[s.Run.Target] && !strings.Contains(s.Run.Target, ".") {
				t.Errorf("step %+v", s)
			}
			if s.Wait != nil && len(s.Wait.Equals) > 0 && !json.Valid(s.Wait.Equals) {
				t.Errorf("equals %s", s.Wait.Equals)
			}
		}
	}
}

// checkOrder checks that the pairs have different groups, that each pair occurs once, and that they have no cycle.
func checkOrder(t *testing.T, order []tutti.GroupOrder) {
	t.Helper()
	g := dag.New[tutti.GroupName]()
	seen := map[tutti.GroupOrder]bool{}
	for _, o := range order {
		if o.First == o.Then || seen[o] || o.First.Validate() != nil || o.Then.Validate() != nil {
			t.Errorf("order %+v", o)
		}
		seen[o] = true
		g.Connect(o.First, o.Then)
	}
	if cycle := g.Cycle(); cycle != nil {
		t.Errorf("order: cycle %v", cycle)
	}
}

func checkReaction(t *testing.T, r tutti.Reaction) {
	t.Helper()
	if r.Window <= 0 || r.Wide < r.Window || r.Safety < 0 || r.Limit < 0 || r.AskAbove < 0 {
		t.Errorf("reaction %+v", r)
	}
	for _, read := range r.Reads {
		badKey := read.Key != "" && tutti.ValidatePattern(read.Key) != nil
		badType := read.Type != "" && tutti.ValidateType(read.Type) != nil
		badTime := read.When != tutti.ReactNow && read.When != tutti.ReactWindow && read.When != tutti.ReactScheduled
		if badKey || badType || badTime || (read.Key == "") == (read.Type == "") {
			t.Errorf("reaction to %+v", read)
		}
	}
}

// TestTaggedScalars checks that a tag decides the type of a value, whatever the value looks like.
func TestTaggedScalars(t *testing.T) {
	cases := map[string]struct {
		equals string
		want   string // empty if the value is refused
	}{
		"no bool":     {"!!bool banana", ""},
		"bool":        {"!!bool True", "true"},
		"old bool":    {"!!bool yes", ""},
		"no int":      {"!!int banana", ""},
		"no float":    {"!!float banana", ""},
		"null":        {"!!null banana", "null"},
		"text":        {"!!str 1", `"1"`},
		"own tag":     {"!mine 1", `"1"`},
		"largest":     {"9223372036854775807", "9223372036854775807"},
		"long number": {strings.Repeat("1", 60), ""},
		"infinite":    {"!!float .inf", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := fleet.Parse("f.yaml", []byte("fleet: x\nplans: {p: {steps: [{wait: {value: a, equals: "+tc.equals+"}}]}}\n"))
			if tc.want == "" {
				if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.HasPrefix(err.Error(), "f.yaml:2: ") {
					t.Errorf("%v, %+v: want it refused in line 2", err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if equals := string(got.Plans[0].Steps[0].Wait.Equals); equals != tc.want {
				t.Errorf("%s, want %s", equals, tc.want)
			}
		})
	}
}
