package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
)

// Finding is a place in a policy whose effect is not what it seems to be.
type Finding struct {
	Line int    `json:"line"`
	What string `json:"what"`
	// Open says that the policy allows something that seems to be denied.
	Open bool `json:"fails_open,omitempty"`
}

// Check returns the rules that can never match, and the rules that allow something that they seem
// to deny. The rules are sorted by line.
func (a *Actions) Check() []Finding {
	var out []Finding
	for i, d := range a.defaults {
		out = append(out, a.checkDefault(i, d)...)
	}
	for i, r := range a.rules {
		out = append(out, a.checkRule(r)...)
		if by := a.shadow(i); by != 0 {
			what := fmt.Sprintf("can never match: line %d comes first and matches everything that this line would", by)
			open := !r.allow && a.allowsBefore(i)
			if open {
				what += "; so the things that it denies are allowed"
			}
			out = append(out, Finding{Line: r.line, What: what, Open: open})
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return a.Line - b.Line })
	return out
}

func (a *Actions) checkDefault(i int, d fallback) []Finding {
	var out []Finding
	if i < len(a.defaults)-1 {
		out = append(out, Finding{Line: d.line, What: fmt.Sprintf("has no effect: line %d sets the default again, and the last line is used", a.defaults[len(a.defaults)-1].line)})
	} else if d.allow {
		out = append(out, Finding{Line: d.line, What: "everything without a matching rule is allowed to everybody, also actions of later releases", Open: true})
	}
	if d.word != "allow" && d.word != "deny" {
		out = append(out, Finding{Line: d.line, What: fmt.Sprintf("%q means deny: every word except allow means deny", d.word)})
	}
	return out
}

// checkRule checks one rule, without the other rules.
func (a *Actions) checkRule(r rule) []Finding {
	var out []Finding
	never := func(dead bool, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		if dead {
			what += "; so the rule can never match"
			if !r.allow {
				what += ", and the things that it should deny may be allowed"
			}
		}
		out = append(out, Finding{Line: r.line, What: what, Open: dead && !r.allow})
	}
	deadCallers := 0
	for _, c := range r.callers {
		if a.deadCaller(c) {
			deadCallers++
		}
	}
	for _, c := range r.callers {
		dead := a.deadCaller(c) && deadCallers == len(r.callers)
		members, group := a.groups[c.text]
		switch {
		case c.re != nil && r.allow && !anchored(c.re.String()):
			out = append(out, Finding{Line: r.line, Open: true, What: fmt.Sprintf("the regex %s matches anywhere in a caller: anchor it, like /^operator:ada$/", c.text)})
		case c.re != nil || !a.deadCaller(c):
		case strings.Contains(c.text, ","):
			never(dead, "write spaces between callers: %q is one word", c.text)
		case group && len(members) == 0:
			never(dead, "group %s has no members", c.text)
		case group:
			never(dead, "no member of group %s is an operator: a caller's id is operator:NAME", c.text)
		default:
			never(dead, "no caller has the id %q: callers are operator:NAME, groups, and /regexes/", c.text)
		}
	}
	dead := !slices.ContainsFunc(r.actions, known)
	for _, action := range r.actions {
		switch {
		case known(action):
		case strings.Contains(action, ","):
			never(dead, "write spaces between actions: %q is one word", action)
		default:
			never(dead, "there is no action %q; there are %s", action, strings.Join(actionNames(), " "))
		}
	}
	for _, c := range []*condition{r.facts, r.classes} {
		c.each(func(s statement) {
			if _, err := strconv.ParseFloat(s.value, 64); err != nil && slices.Contains([]string{"<", "<=", ">", ">="}, s.op) {
				never(r.allow, "%s%s%s: only numbers can be compared with < and >", s.name, s.op, s.value)
			}
			if strings.Contains(s.value, ",") && s.re == nil {
				out = append(out, Finding{Line: r.line, What: fmt.Sprintf("%s%s%s: write spaces between conditions; this is one value that contains a comma", s.name, s.op, s.value), Open: !r.allow})
			}
		})
	}
	return out
}

// deadCaller returns true if no caller can match `c`.
func (a *Actions) deadCaller(c caller) bool {
	isOperator := func(id string) bool { return strings.HasPrefix(id, "operator:") && !strings.Contains(id, ",") }
	return c.re == nil && !isOperator(c.text) && !slices.ContainsFunc(a.groups[c.text], isOperator)
}

func anchored(re string) bool {
	return strings.HasPrefix(re, "^operator:") || strings.HasPrefix(re, `\Aoperator:`) || strings.HasSuffix(re, "$") && strings.HasPrefix(re, "^")
}

func known(action string) bool {
	return slices.Contains(tutti.RemoteActions, tutti.RemoteAction(action))
}

func actionNames() []string {
	out := make([]string, len(tutti.RemoteActions))
	for i, a := range tutti.RemoteActions {
		out[i] = string(a)
	}
	return out
}

// The method `each` calls f with every statement of a condition, one by one.
func (c *condition) each(f func(statement)) {
	if c == nil {
		return
	}
	if c.op == "" {
		f(c.statement)
	}
	for _, part := range c.parts {
		part.each(f)
	}
}

// shadow checks whether earlier rules match everything that rule i matches. In that case rule i has
// no effect, and shadow returns the line of the last of these earlier rules. If rule i can still
// match something, shadow returns 0.
func (a *Actions) shadow(i int) int {
	r, last := a.rules[i], 0
	for _, c := range a.callersOf(r) {
		for _, action := range actionsOf(r) {
			by := slices.IndexFunc(a.rules[:i], func(earlier rule) bool { return a.covers(earlier, r, c, action) })
			if by < 0 {
				return 0
			}
			last = max(last, a.rules[by].line)
		}
	}
	return last
}

// allowsBefore reports whether an earlier allow rule covers a part of rule i.
func (a *Actions) allowsBefore(i int) bool {
	r := a.rules[i]
	for _, c := range a.callersOf(r) {
		for _, action := range actionsOf(r) {
			by := slices.IndexFunc(a.rules[:i], func(earlier rule) bool { return a.covers(earlier, r, c, action) })
			if by >= 0 && a.rules[by].allow {
				return true
			}
		}
	}
	return false
}

// anybody stands for the callers of a rule with `*`.
var anybody = caller{text: "*"}

// callersOf returns the callers of a rule. The members of a group are listed one by one.
func (a *Actions) callersOf(r rule) []caller {
	if len(r.callers) == 0 {
		return []caller{anybody}
	}
	var out []caller
	for _, c := range r.callers {
		members, group := a.groups[c.text]
		if c.re != nil || !group {
			out = append(out, c)
			continue
		}
		for _, id := range members {
			out = append(out, caller{text: id})
		}
	}
	return out
}

func actionsOf(r rule) []string {
	if len(r.actions) == 0 {
		return actionNames()
	}
	return r.actions
}

// The method `covers` returns true if, for this caller and action, the rule `earlier` matches in every case
// in which rule `r` matches. The method compares conditions only by their text.
func (a *Actions) covers(earlier, r rule, c caller, action string) bool {
	if len(earlier.actions) > 0 && !slices.Contains(earlier.actions, action) {
		return false
	}
	for k, mine := range []*condition{earlier.facts, earlier.classes} {
		if mine != nil && earlier.text[k] != r.text[k] {
			return false
		}
	}
	// If a node does not know something, a deny rule matches and an allow rule does not.
	if (earlier.facts != nil || earlier.classes != nil) && earlier.allow && !r.allow {
		return false
	}
	if len(earlier.callers) == 0 {
		return true
	}
	return slices.ContainsFunc(earlier.callers, func(e caller) bool {
		if c.re != nil || c.text == anybody.text {
			return e.re != nil && e.text == c.text
		}
		return a.is(e, c.text)
	})
}
