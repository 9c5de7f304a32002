package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
)

// maxWhereCost limits the work for one node and one condition, in the units of CEL. It is the limit of selectors.
const maxWhereCost = 100_000

// whereInterrupt is how many steps of a loop in a condition may pass before it looks whether its time is over.
const whereInterrupt = 10

// Conditions are the conditions of the groups with `where`, sorted by group (ADR 0041).
type Conditions struct {
	of    []condition
	where tutti.Digest // FleetSet.Where
}

type condition struct {
	group tutti.GroupName
	text  string
}

// NewConditions returns the conditions of a fleet, or nil if no group has one. The argument `where` is FleetSet.Where.
func NewConditions(fleet tutti.Fleet, where tutti.Digest) *Conditions {
	out := &Conditions{where: where}
	for _, g := range fleet.Groups {
		if g.Where != "" {
			out.of = append(out.of, condition{g.Name, g.Where})
		}
	}
	if len(out.of) == 0 {
		return nil
	}
	slices.SortFunc(out.of, func(a, b condition) int { return strings.Compare(string(a.group), string(b.group)) })
	return out
}

// The method `text` returns all groups and conditions.
func (c *Conditions) text() string {
	text := ""
	if c != nil {
		for _, of := range c.of {
			text += fmt.Sprintf("%q %q\n", of.group, of.text)
		}
	}
	return text
}

// NextWhere returns FleetSet.Where for the next fleet file. It is that of the last fleet file if the conditions stay as they
// are.
func NextWhere(last tutti.Digest, now *Conditions, next tutti.Fleet) tutti.Digest {
	text := NewConditions(next, "").text()
	if text == now.text() {
		return last
	}
	return tutti.DigestOf([]byte(string(last) + "\n" + text))
}

// Digest returns a digest that changes with the groups and conditions. It is empty if there are none.
func (c *Conditions) Digest() tutti.Digest {
	if c == nil {
		return ""
	}
	return tutti.DigestOf([]byte(string(c.where) + "\n" + c.text()))
}

// Has reports whether a group has a condition.
func (c *Conditions) Has(group tutti.GroupName) bool {
	return c != nil && slices.ContainsFunc(c.of, func(c condition) bool { return c.group == group })
}

// Groups returns the names of the groups, sorted.
func (c *Conditions) Groups() []tutti.GroupName {
	if c == nil {
		return nil
	}
	out := make([]tutti.GroupName, len(c.of))
	for i, w := range c.of {
		out[i] = w.group
	}
	return out
}

// Matcher decides conditions. A Matcher is safe for concurrent use.
type Matcher struct{ of []where }

// where is a compiled condition.
type where struct {
	group   tutti.GroupName
	program cel.Program // nil if this release cannot read the condition
	facts   bool        // the condition reads facts
	classes bool        // the condition reads classes of the ENC
	// extensions are the names of trusted extensions in the condition.
	extensions []string
}

// Matcher compiles the conditions.
func (c *Conditions) Matcher() *Matcher {
	out := &Matcher{}
	if c == nil {
		return out
	}
	for _, of := range c.of {
		// A condition that a later release has stored may be unknown here. Then nobody knows who is in the group.
		w, err := compileWhere(of.text)
		if err != nil {
			w = where{}
		}
		w.group = of.group
		out.of = append(out.of, w)
	}
	return out
}

// ReadsFacts reports whether a condition reads facts.
func (m *Matcher) ReadsFacts() bool {
	return slices.ContainsFunc(m.of, func(w where) bool { return w.facts })
}

// Known is what the server knows about a node.
type Known struct {
	Node        tutti.NodeName
	Certificate *tutti.NodeCertificate // nil if the node joined with a token
	// Facts are the facts as selector.ParseFacts returns them. If Facts is nil, NoFacts says why.
	Facts   map[string]any
	NoFacts string
	// FactsOf is the digest of the facts.
	FactsOf tutti.Digest
	// Classes are the names of the classes that the ENC gives to the node. If Classes is nil, NoClasses says why.
	Classes   []string
	NoClasses string
}

// Match returns the groups in which a node is, and the groups for which nobody knows this. The result is sorted by group.
// The node is in no other group with a condition. If ctx ends first, nobody knows the rest.
func (m *Matcher) Match(ctx context.Context, known Known) []tutti.Match {
	var out []tutti.Match
	for _, w := range m.of {
		in, unknown := w.holds(ctx, known)
		if !in && unknown == "" {
			continue
		}
		match := tutti.Match{Group: w.group, Unknown: unknown}
		if w.facts {
			match.Facts = known.FactsOf
		}
		out = append(out, match)
	}
	return out
}

// The method `holds` decides a condition for a node, or says why it cannot be decided.
func (w where) holds(ctx context.Context, known Known) (in bool, unknown string) {
	if w.program == nil {
		return false, "the server cannot read the condition: upgrade the server"
	}
	extensions, classes := map[string]string{}, known.Classes
	if known.Certificate != nil {
		extensions = known.Certificate.Extensions
	}
	var lacks []*cel.AttributePatternType
	if known.Facts == nil {
		lacks = append(lacks, cel.AttributePattern("facts"))
	}
	if known.Classes == nil {
		classes, lacks = []string{}, append(lacks, cel.AttributePattern("classes"))
	}
	var input any = map[string]any{
		"certname": string(known.Node), "classes": classes, "facts": known.Facts,
		"trusted": inOrder{types.NewStringStringMap(types.DefaultTypeAdapter, extensions)},
	}
	if len(lacks) > 0 {
		var err error
		if input, err = cel.PartialVars(input, lacks...); err != nil {
			return false, "the server cannot evaluate the condition"
		}
	}
	out, _, err := w.program.ContextEval(ctx, input)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, "the condition takes too long with the facts of this node"
	case err != nil:
		text := err.Error()
		if strings.Contains(text, "no such key") {
			text += "; if not all nodes have it, the condition must check for it first: has(facts.NAME) && …"
		}
		return false, short(text)
	case types.IsUnknown(out):
		var reasons []string
		if w.facts && known.Facts == nil {
			reasons = append(reasons, known.NoFacts)
		}
		if w.classes && known.Classes == nil {
			reasons = append(reasons, known.NoClasses)
		}
		return false, short(strings.Join(reasons, "; "))
	}
	in, is := out.Value().(bool)
	if !is {
		return false, short(fmt.Sprintf("the condition is a %s, and must be true or false", out.Type().TypeName()))
	}
	return in, ""
}

// The function `short` makes a reason fit into an event. The reason may quote facts of the node.
func short(text string) string { return plain.Cut(tutti.OneLine(text), tutti.MaxUnknown) }

func compileWhere(text string) (where, error) {
	if len(text) > maxTrustedText {
		return where{}, tutti.Errorf(tutti.CodeInvalid, "a condition of %d bytes, at most %d", len(text), maxTrustedText)
	}
	env, err := cel.NewEnv(
		cel.CustomTypeAdapter(adapter{types.DefaultTypeAdapter}),
		cel.Variable("certname", cel.StringType),
		cel.Variable("trusted", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("facts", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("classes", cel.ListType(cel.StringType)),
		cel.CrossTypeNumericComparisons(true), // facts are JSON, where 4 and 4.0 are the same number
		cel.OptionalTypes(),
		cel.ParserExpressionSizeLimit(maxTrustedText),
		cel.ParserRecursionLimit(maxTrustedNested),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals()),
	)
	if err != nil {
		return where{}, tutti.Wrap(tutti.CodeInternal, err, "conditions of groups")
	}
	checked, err := compiled(env, text)
	if err != nil {
		return where{}, err
	}
	program, err := env.Program(checked, cel.CostLimit(maxWhereCost), cel.EvalOptions(cel.OptPartialEval), cel.InterruptCheckFrequency(whereInterrupt))
	if err != nil {
		return where{}, tutti.Wrap(tutti.CodeInvalid, err, "the condition %q", text)
	}
	return where{program: program, facts: reads(checked, "facts"), classes: reads(checked, "classes"), extensions: extensionsOf(checked)}, nil
}

// The function `reads` reports whether a condition uses a variable.
func reads(checked *cel.Ast, name string) bool {
	return len(ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && e.AsIdent() == name
	})) > 0
}

// adapter lets a condition visit the keys of structured facts in sorted order, so that it has the same answer each time.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch value := value.(type) {
	case map[string]any:
		return inOrder{types.NewStringInterfaceMap(a, value)}
	case []any:
		return types.NewDynamicList(a, value)
	}
	return a.Adapter.NativeToValue(value)
}

// whereKeys are the keys of a group that need members whom the node does not choose.
var whereKeys = []string{"mode", "environment", "serial", "safety_when_away", "runs_every", "remove_after"}

// ownFacts is the hint for a group with `where` in a place where it must not be.
const ownFacts = "a node chooses its own facts; use a group with `trusted: CONDITION`, `joined: true` or `nodes`"

// whereText reads the condition of a group.
func whereText(r *reader, n *yaml.Node, what string) string {
	text, ok := r.text(n, what)
	if !ok {
		return ""
	}
	w, err := compileWhere(text)
	if err != nil {
		r.report(n, `like 'facts.os.family == "RedHat"' or '"role::web" in classes', with certname, trusted, facts and classes`, "%s: %s", what, err.Error())
		return text
	}
	if w.facts {
		r.factual = append(r.factual, wheres{n, what})
	}
	for _, name := range w.extensions {
		knownExtension(r, n, name, what)
	}
	return text
}

// wheres is a condition over facts with its place.
type wheres struct {
	at   *yaml.Node
	what string
}

// factsHeld reports conditions over facts that the server does not hold.
func factsHeld(r *reader, rules tutti.InventoryRules) {
	for _, w := range r.factual {
		if !rules.Facts {
			r.report(w.at, "add `inventory: {facts: true}`", "%s: the condition reads facts, and the server does not hold the facts of nodes", w.what)
		}
	}
}
