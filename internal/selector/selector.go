// Package selector decides which nodes an operator means. An expression in CEL can use what the server knows about a
// node, and the facts of the node. Expressions are typed, and their size and cost are limited. The decision is yes,
// no, or not possible without the facts of the node. If a node lacks a fact that an expression needs, the decision
// for this node is an error, and not no. So the caller can name this node.
package selector

import (
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const (
	// MaxText is the largest length of an expression, in bytes.
	MaxText = 4 << 10
	// maxCost limits the work for one node, in the units of CEL. These units are about one
	// per operation, and one per ten bytes that are searched.
	maxCost   = 100_000
	maxNested = 50
)

// Node has the properties of a node that an expression can use, except facts.
type Node struct {
	Name   tutti.NodeName
	Groups []tutti.GroupName // also the groups with `where`
	// Undecided are the groups with `where` of which nobody knows whether the node is in them, with the reason.
	Undecided map[tutti.GroupName]string
	Outcome   tutti.Outcome // empty if the node never ran
	Reason    tutti.Reason
	LastRun   time.Time // zero if the node never ran; the zero time counts as before all other times
	Connected bool
	Running   bool
	Paused    bool
	Agent     string // version
	Puppet    string // version
}

// Of returns the properties of a node that the server knows.
func Of(v api.NodeView) Node {
	groups, undecided := slices.Clone(v.Groups), map[tutti.GroupName]string{}
	for _, m := range v.Matches {
		if m.Unknown != "" {
			undecided[m.Group] = m.Unknown
		} else {
			groups = append(groups, m.Group)
		}
	}
	slices.Sort(groups)
	return Node{
		Name: v.Node, Groups: groups, Undecided: undecided, Outcome: v.Outcome, Reason: v.Reason, LastRun: v.RunAt,
		Connected: v.Connected, Running: v.Active != "", Paused: v.Paused != "", Agent: v.Version, Puppet: v.Puppet,
	}
}

// Answer says whether a node is selected.
type Answer int

// The answers.
const (
	No Answer = iota
	Yes
	NeedsFacts // the answer depends on facts of the node
)

// Selector is a parsed expression. A Selector is safe for concurrent use.
type Selector struct {
	text    string
	program cel.Program
	facts   []string // top-level names of the facts that the expression uses
	all     bool     // the expression computes the names of the facts that it uses
	whole   bool     // the expression needs the whole list of groups
}

// Parse reads an expression. The empty expression selects every node. Parse returns CodeInvalid with the place of the
// error.
func Parse(text string) (*Selector, error) {
	if strings.TrimSpace(text) == "" {
		text = "true"
	}
	if len(text) > MaxText {
		return nil, tutti.Errorf(tutti.CodeInvalid, "selector of %d bytes, at most %d", len(text), MaxText)
	}
	env, err := environment()
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInternal, err, "selectors")
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "selector: %s%s", strings.TrimSpace(issues.Err().Error()), hint(text, issues.Err()))
	}
	if checked.OutputType() != cel.BoolType {
		return nil, tutti.Errorf(tutti.CodeInvalid, "selector %q is a %s; it has to be true or false for a node, like: \"web\" in groups", text, checked.OutputType())
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptPartialEval))
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "selector %q", text)
	}
	s := &Selector{text: text, program: program}
	s.facts, s.all = factsOf(checked.NativeRep())
	s.whole = wholeGroups(checked.NativeRep())
	return s, nil
}

// common are the options of all expressions.
var common = []cel.EnvOption{
	cel.CrossTypeNumericComparisons(true), // facts are JSON, where 4 and 4.0 are the same number
	cel.OptionalTypes(),
	cel.ParserRecursionLimit(maxNested),
	cel.ParserExpressionSizeLimit(MaxText),
}

func environment() (*cel.Env, error) {
	return cel.NewEnv(append([]cel.EnvOption{
		cel.Variable("node", cel.StringType),
		cel.Variable("groups", cel.ListType(cel.StringType)),
		cel.Variable("outcome", cel.StringType),
		cel.Variable("reason", cel.StringType),
		cel.Variable("last_run", cel.TimestampType),
		cel.Variable("now", cel.TimestampType),
		cel.Variable("connected", cel.BoolType),
		cel.Variable("running", cel.BoolType),
		cel.Variable("paused", cel.BoolType),
		cel.Variable("agent", cel.StringType),
		cel.Variable("puppet", cel.StringType),
		cel.Variable("facts", cel.MapType(cel.StringType, cel.DynType)),
	}, common...)...)
}

// hint helps a user who has given a single word instead of an expression.
func hint(text string, err error) string {
	if strings.Contains(err.Error(), "undeclared reference") {
		return "\nthere are node, groups, outcome, reason, last_run, now, connected, running, paused, agent, puppet and facts; strings have quotes, like: \"web\" in groups"
	}
	if strings.Contains(text, "=") && !strings.Contains(text, "==") {
		return "\nequal is written =="
	}
	return ""
}

// String returns the text of the expression.
func (s *Selector) String() string { return s.text }

// Facts returns the sorted top-level names of the facts that the expression uses. If the expression may use any fact,
// Facts returns no names, and `all` is true.
func (s *Selector) Facts() (names []string, all bool) { return s.facts, s.all }

// Decide reports whether a node is selected. If facts is nil, the answer may be NeedsFacts.
// An error is about this node only.
func (s *Selector) Decide(n Node, facts map[string]any, now time.Time) (Answer, error) {
	if err := n.whole(); s.whole && err != nil {
		return No, err
	}
	vars := map[string]any{
		"node": string(n.Name), "groups": n.groups(), "outcome": string(n.Outcome), "reason": string(n.Reason),
		"last_run": lastRun(n.LastRun), "now": now, "connected": n.Connected, "running": n.Running, "paused": n.Paused,
		"agent": n.Agent, "puppet": n.Puppet, "facts": facts,
	}
	var input any = vars
	if facts == nil {
		var err error
		if input, err = cel.PartialVars(vars, cel.AttributePattern("facts")); err != nil {
			return No, tutti.Wrap(tutti.CodeInternal, err, "selector")
		}
	}
	return s.eval(input)
}

// ByName decides with the name of a node alone. ByName returns NeedsFacts if the expression depends on anything
// else. A caller uses ByName if it must not trust other data about the node.
func (s *Selector) ByName(name tutti.NodeName) (Answer, error) {
	var unknown []*cel.AttributePatternType
	for _, v := range []string{"groups", "outcome", "reason", "last_run", "now", "connected", "running", "paused", "agent", "puppet", "facts"} {
		unknown = append(unknown, cel.AttributePattern(v))
	}
	input, err := cel.PartialVars(map[string]any{"node": string(name)}, unknown...)
	if err != nil {
		return No, tutti.Wrap(tutti.CodeInternal, err, "selector")
	}
	return s.eval(input)
}

func (s *Selector) eval(input any) (Answer, error) {
	out, _, err := s.program.Eval(input)
	switch {
	case err != nil:
		return No, tutti.Errorf(tutti.CodeInvalid, "%s%s", err.Error(), missing(err))
	case types.IsUnknown(out):
		return NeedsFacts, nil
	}
	if yes, ok := out.Value().(bool); ok && yes {
		return Yes, nil
	}
	return No, nil
}

func missing(err error) string {
	if strings.Contains(err.Error(), "no such key") {
		return "; if not all nodes have a fact, check for it first: has(facts.NAME) && …"
	}
	return ""
}

// lastRun returns a time that CEL can represent. For a node that never ran, lastRun returns a time before all
// other times.
func lastRun(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return t
}

func words[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, w := range in {
		out[i] = string(w)
	}
	return out
}

// factsOf returns the names of the facts that an expression uses. If an expression uses facts in any form except
// facts.NAME and facts["NAME"], the expression may use any fact.
func factsOf(checked *ast.AST) (names []string, all bool) {
	uses := ast.MatchDescendants(ast.NavigateAST(checked), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && e.AsIdent() == "facts"
	})
	for _, use := range uses {
		name, ok := nameOf(use)
		if !ok {
			return nil, true
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), false
}

func nameOf(use ast.NavigableExpr) (string, bool) {
	parent, ok := use.Parent()
	if !ok {
		return "", false
	}
	if parent.Kind() == ast.SelectKind {
		return parent.AsSelect().FieldName(), true
	}
	if parent.Kind() != ast.CallKind {
		return "", false
	}
	call := parent.AsCall()
	indexes := []string{operators.Index, operators.OptIndex, operators.OptSelect}
	args := call.Args()
	if !slices.Contains(indexes, call.FunctionName()) || len(args) != 2 || args[0].ID() != use.ID() || args[1].Kind() != ast.LiteralKind {
		return "", false
	}
	name, ok := args[1].AsLiteral().Value().(string)
	return name, ok
}
