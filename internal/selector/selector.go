// Package selector says which nodes an operator means: expressions in CEL over what
// the server knows of a node and over the node's facts. They are typed, bounded in
// size and cost, and decided in three ways: yes, no, or not without the node's facts.
// What is wrong for one node (a fact that it lacks) is an error for that node, not a
// no: whoever asks must be able to name it.
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
	// MaxText is the longest expression, in bytes.
	MaxText = 4 << 10
	// maxCost bounds the work for one node, in CEL's units: about one per operation
	// and per ten bytes that are looked through.
	maxCost   = 100_000
	maxNested = 50
)

// Node is what an expression may ask of a node, besides its facts.
type Node struct {
	Name      tutti.NodeName
	Groups    []tutti.GroupName
	Outcome   tutti.Outcome // empty: it never ran
	Reason    tutti.Reason
	LastRun   time.Time // zero: never, which is before everything
	Connected bool
	Running   bool
	Paused    bool
	Agent     string // version
	Puppet    string // version
}

// Of is what the server knows of a node.
func Of(v api.NodeView) Node {
	return Node{
		Name: v.Node, Groups: v.Groups, Outcome: v.Outcome, Reason: v.Reason, LastRun: v.RunAt,
		Connected: v.Connected, Running: v.Active != "", Paused: v.Paused != "", Agent: v.Version, Puppet: v.Puppet,
	}
}

// Answer is whether a node is selected.
type Answer int

// The answers.
const (
	No Answer = iota
	Yes
	NeedsFacts // nobody can say without the node's facts
)

// Selector is a parsed expression. It may be used by many goroutines at once.
type Selector struct {
	text    string
	program cel.Program
	facts   []string // top-level names that it asks for
	all     bool     // it asks for facts whose names it computes
}

// Parse reads an expression; the empty one selects every node. CodeInvalid says
// where it is wrong.
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
	return s, nil
}

func environment() (*cel.Env, error) {
	return cel.NewEnv(
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
		cel.CrossTypeNumericComparisons(true), // facts are JSON: 4 and 4.0 are one number
		cel.OptionalTypes(),
		cel.ParserRecursionLimit(maxNested),
		cel.ParserExpressionSizeLimit(MaxText),
	)
}

// hint helps who gives a word where an expression is wanted.
func hint(text string, err error) string {
	if strings.Contains(err.Error(), "undeclared reference") {
		return "\nthere are node, groups, outcome, reason, last_run, now, connected, running, paused, agent, puppet and facts; strings have quotes, like: \"web\" in groups"
	}
	if strings.Contains(text, "=") && !strings.Contains(text, "==") {
		return "\nequal is written =="
	}
	return ""
}

// String is the expression.
func (s *Selector) String() string { return s.text }

// Facts are the top-level names of the facts that the expression asks for, sorted;
// none if it may ask for any (All).
func (s *Selector) Facts() (names []string, all bool) { return s.facts, s.all }

// Decide says whether a node is selected. Without its facts (nil) the answer may be
// NeedsFacts. An error is about this node.
func (s *Selector) Decide(n Node, facts map[string]any, now time.Time) (Answer, error) {
	vars := map[string]any{
		"node": string(n.Name), "groups": words(n.Groups), "outcome": string(n.Outcome), "reason": string(n.Reason),
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

// ByName says whether a node is selected as far as its name says it: NeedsFacts where anything else decides. It is for whoever
// knows nothing of the node but by the word of somebody else.
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
		return "; where not all nodes have a fact, ask for it first: has(facts.NAME) && …"
	}
	return ""
}

// lastRun is a time that CEL can hold: a node that never ran did so before
// everything.
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

// factsOf finds the names of the facts that an expression asks for. Where facts is
// used in any other way than facts.NAME and facts["NAME"], it may be any.
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
