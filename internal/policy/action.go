package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/tutti-project/tutti"
)

// Actions is the policy of a node. Actions says which caller may request which action from the
// node's Puppet (see tutti.RemoteAction). The file has the format of MCollective's ActionPolicy:
//
//	policy default deny
//	allow⇥operator:ada operators⇥status disable⇥environment=production⇥*
//
// Columns are separated by tabs: the verdict, callers (`*`, ids, /regex/, groups), actions (`*` or
// words), facts (`*`, `fact=value …`, or a condition), and classes (in the same forms; this column
// may be left out). All columns of a rule must match. The first rule that matches decides. If no
// rule matches, the default decides. If the file sets no default, it is deny.
//
// ParseActions refuses a file that it does not fully understand. If ParseActions returns an error, the
// caller must deny everything.
type Actions struct {
	file     string
	rules    []rule
	defaults []fallback // all `policy default` lines; the last one counts
	groups   map[string][]string
}

type rule struct {
	line    int
	allow   bool
	callers []caller // empty for every caller
	actions []string // empty for all actions
	facts   *condition
	classes *condition
	text    [2]string // the text of the columns facts and classes
}

type caller struct {
	text string
	re   *regexp.Regexp // nil if text is an id or a group
}

type fallback struct {
	line  int
	allow bool
	word  string
}

// The following constants limit a policy file.
const (
	MaxActions = 256 << 10 // bytes
	maxLine    = 8 << 10
)

// Shipped is the policy of a node that has no policy file. Operators may read the state of
// Puppet. Operators may also enable, disable and run Puppet, because plans do the same. They may compare the catalogs of
// compiles for a diff and check their code, because an operator with a code key has asked for these compiles. They may
// compare catalogs of a Puppet Server, because operators who may run nodes see the same in noop runs. The policy denies
// `resource`.
const Shipped = "policy default deny\nallow\t/^operator:/\tstatus last_run_summary facts enable disable runonce diff check compare\t*\t*\n"

// ParseActions reads a policy and the groups of callers. A line of groups has the form
// `name id id …`. The argument groups may be empty. Errors have a file and a line.
func ParseActions(file, text, groupFile, groups string) (*Actions, error) {
	a := &Actions{file: file, groups: map[string][]string{}}
	if len(text) > MaxActions || len(groups) > MaxActions {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s: larger than %d bytes", file, MaxActions)
	}
	for n, line := range lines(groups) {
		words := strings.Fields(line)
		if _, twice := a.groups[words[0]]; twice {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s:%d: a second group %q", groupFile, n, words[0])
		}
		a.groups[words[0]] = words[1:]
	}
	for n, line := range lines(text) {
		if err := a.line(n, line); err != nil {
			return nil, tutti.Wrap(tutti.CodeInvalid, err, "%s:%d", file, n)
		}
	}
	return a, nil
}

// lines yields the lines that are neither empty nor comments, with their numbers.
func lines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.SplitSeq(text, "\n") {
			n++
			line = strings.TrimRightFunc(line, unicode.IsSpace)
			if trimmed := strings.TrimSpace(line); trimmed == "" || trimmed[0] == '#' {
				continue
			}
			if !yield(n, line) {
				return
			}
		}
	}
}

var tabs = regexp.MustCompile(`\t+`)

func (a *Actions) line(n int, line string) error {
	if len(line) > maxLine {
		return tutti.Errorf(tutti.CodeInvalid, "a line of %d bytes, at most %d", len(line), maxLine)
	}
	if words := strings.Fields(line); words[0] == "policy" {
		if len(words) != 3 || words[1] != "default" {
			return tutti.Errorf(tutti.CodeInvalid, "not understood; a default is: policy default deny")
		}
		a.defaults = append(a.defaults, fallback{n, words[2] == "allow", words[2]})
		return nil
	}
	columns := tabs.Split(line, -1)
	if len(columns) == 1 {
		return tutti.Errorf(tutti.CodeInvalid, "no tabs: columns are parted by tabs, not by spaces:  allow⇥CALLERS⇥ACTIONS⇥FACTS⇥CLASSES")
	}
	if len(columns) < 4 || len(columns) > 5 {
		return tutti.Errorf(tutti.CodeInvalid, "%d columns; a rule has 4 or 5, with tabs between them: allow⇥CALLERS⇥ACTIONS⇥FACTS⇥CLASSES", len(columns))
	}
	r := rule{line: n, allow: columns[0] == "allow"}
	if !r.allow && columns[0] != "deny" {
		return tutti.Errorf(tutti.CodeInvalid, "%q: a rule begins with allow or deny", columns[0])
	}
	columns = append(columns, "*")
	var err error
	if r.callers, err = parseCallers(columns[1]); err != nil {
		return err
	}
	if r.actions = strings.Fields(columns[2]); slices.Contains(r.actions, "*") {
		r.actions = nil
	} else if len(r.actions) == 0 {
		return tutti.Errorf(tutti.CodeInvalid, "no actions")
	}
	r.text = [2]string{normal(columns[3]), normal(columns[4])}
	if r.facts, err = parseCondition(columns[3], factsColumn); err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "facts")
	}
	if r.classes, err = parseCondition(columns[4], classesColumn); err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "classes")
	}
	a.rules = append(a.rules, r)
	return nil
}

func normal(column string) string { return strings.Join(strings.Fields(column), " ") }

func parseCallers(column string) ([]caller, error) {
	var out []caller
	for word := range strings.FieldsSeq(column) {
		c := caller{text: word}
		if word == "*" {
			return nil, nil
		}
		if len(word) > 1 && word[0] == '/' && strings.HasSuffix(word, "/") {
			var err error
			if c.re, err = regexp.Compile(word[1 : len(word)-1]); err != nil {
				return nil, tutti.Wrap(tutti.CodeInvalid, err, "callers")
			}
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "no callers")
	}
	return out, nil
}

// Question is a question that a policy decides. The functions Facts and Classes return `known`: whether the node
// knows its facts or its classes. Before its first run a node knows neither facts nor classes.
type Question struct {
	Caller  string
	Action  tutti.RemoteAction
	Facts   func() (facts map[string]any, known bool) // called only if a rule needs the facts
	Classes func() (classes []string, known bool)
}

// Decide returns whether the policy allows the question. Decide also returns the rule that decides, for
// example `file:line: deny`. If a rule needs data that the node does not know (see Question), a deny rule
// matches and an allow rule does not.
func (a *Actions) Decide(q Question) (allowed bool, because string) {
	for _, r := range a.rules {
		if !a.matchesCaller(r, q.Caller) || len(r.actions) > 0 && !slices.Contains(r.actions, string(q.Action)) {
			continue
		}
		met := meet(r.facts.eval(q), r.classes.eval(q))
		if met == yes || met == unknown && !r.allow {
			return r.allow, fmt.Sprintf("%s:%d: %s", a.file, r.line, r.verdict())
		}
	}
	if n := len(a.defaults); n > 0 {
		d := a.defaults[n-1]
		return d.allow, fmt.Sprintf("%s:%d: policy default %s", a.file, d.line, d.word)
	}
	return false, a.file + ": no rule, denied"
}

func (r rule) verdict() string {
	if r.allow {
		return "allow"
	}
	return "deny"
}

func (a *Actions) matchesCaller(r rule, id string) bool {
	return len(r.callers) == 0 || slices.ContainsFunc(r.callers, func(c caller) bool { return a.is(c, id) })
}

func (a *Actions) is(c caller, id string) bool {
	if c.re != nil {
		return c.re.MatchString(id)
	}
	return c.text == id || slices.Contains(a.groups[c.text], id)
}
