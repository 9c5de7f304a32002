package fleet

import (
	"regexp"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

const (
	maxTrustedText   = 4 << 10 // bytes of a condition
	maxTrustedNested = 50      // CEL needs a second to check lists in 250 levels
	// maxTrustedCost limits the work for one node, in the units of CEL. A unit is about one operation.
	maxTrustedCost = 2_000
)

// trusted is a condition over what the Puppet certificate of a node says (ADR 0032). The CA has signed the certificate,
// so the node cannot choose its groups.
type trusted struct {
	group   tutti.GroupName
	program cel.Program
}

func compileTrusted(text string) (cel.Program, error) {
	env, checked, err := checkTrusted(text)
	if err != nil {
		return nil, err
	}
	program, err := env.Program(checked, cel.CostLimit(maxTrustedCost))
	return program, tutti.Wrap(tutti.CodeInvalid, err, "the condition %q", text)
}

func checkTrusted(text string) (*cel.Env, *cel.Ast, error) {
	if len(text) > maxTrustedText {
		return nil, nil, tutti.Errorf(tutti.CodeInvalid, "a condition of %d bytes, at most %d", len(text), maxTrustedText)
	}
	env, err := cel.NewEnv(
		cel.Variable("certname", cel.StringType),
		cel.Variable("trusted", cel.MapType(cel.StringType, cel.StringType)),
		cel.ParserExpressionSizeLimit(maxTrustedText),
		cel.ParserRecursionLimit(maxTrustedNested),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals()),
	)
	if err != nil {
		return nil, nil, tutti.Wrap(tutti.CodeInternal, err, "conditions of groups")
	}
	checked, err := compiled(env, text)
	if err == nil && checked.OutputType() != cel.BoolType {
		err = tutti.Errorf(tutti.CodeInvalid, "the condition is a %s, and must be true or false", checked.OutputType())
	}
	return env, checked, err
}

// The function `compiled` parses and checks a condition. A condition whose type depends on a fact is checked when it is used.
func compiled(env *cel.Env, text string) (*cel.Ast, error) {
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		if first.Location.Line() < 1 { // the error is about the whole condition
			return nil, tutti.Errorf(tutti.CodeInvalid, "the condition: %s", first.Message)
		}
		return nil, tutti.Errorf(tutti.CodeInvalid, "line %d, character %d of the condition: %s", first.Location.Line(), first.Location.Column()+1, first.Message)
	}
	if out := checked.OutputType(); out != cel.BoolType && out != cel.DynType {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the condition is a %s, and must be true or false", out)
	}
	return checked, nil
}

// affordable returns an error if a condition can cost more than an evaluation may. Such a condition would put some nodes
// into no group without a word.
func affordable(env *cel.Env, checked *cel.Ast) error {
	most, err := env.EstimateCost(checked, certificateSize{})
	if err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "the cost of the condition")
	}
	if most.Max > maxTrustedCost {
		return tutti.Errorf(tutti.CodeInvalid, "the condition can cost %d operations for each node, at most %d", most.Max, maxTrustedCost)
	}
	return nil
}

// certificateSize knows how large the content of a certificate can be.
type certificateSize struct{}

// EstimateSize implements cost.Estimator.
func (certificateSize) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	text := &cost.SizeEstimate{Max: tutti.MaxExtensionLength}
	switch path := n.Path(); {
	case len(path) == 1 && path[0] == "trusted":
		return &cost.SizeEstimate{Max: tutti.MaxExtensions, Key: text, Elem: text}
	case len(path) > 0:
		return text
	}
	return nil
}

// EstimateCallCost implements cost.Estimator.
func (certificateSize) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// The method `has` reports whether a certificate fits. A condition that cannot be decided, for example because the
// certificate lacks an extension, does not fit.
func (t trusted) has(node tutti.NodeName, c tutti.NodeCertificate) bool {
	extensions := inOrder{types.NewStringStringMap(types.DefaultTypeAdapter, c.Extensions)}
	out, _, err := t.program.Eval(map[string]any{"certname": string(node), "trusted": extensions})
	if err != nil {
		return false
	}
	fits, is := out.Value().(bool)
	return is && fits
}

// inOrder is a map of CEL that visits its keys in sorted order. A condition can see the order, for example by `map` and
// `filter`. Go's order changes from one evaluation to the next, so a node could change its groups when the server starts.
type inOrder struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m inOrder) Iterator() traits.Iterator {
	var keys []string
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		if key, ok := it.Next().Value().(string); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return types.NewStringList(types.DefaultTypeAdapter, keys).Iterator()
}

// trustedText reads the condition of a group.
func trustedText(r *reader, n *yaml.Node, what string) string {
	text, ok := r.text(n, what)
	if !ok {
		return ""
	}
	env, checked, err := checkTrusted(text)
	if err == nil {
		err = affordable(env, checked)
	}
	if err != nil {
		r.report(n, `like 'trusted.pp_role == "web"', with certname and trusted; a fact that the node itself reports cannot decide about grants`, "%s: %s", what, err.Error())
		return text
	}
	for _, name := range extensionsOf(checked) {
		knownExtension(r, n, name, what)
	}
	return text
}

// extensionsOf returns the names of extensions that a condition contains: trusted.NAME, trusted["NAME"] and "NAME" in trusted.
func extensionsOf(checked *cel.Ast) []string {
	var out []string
	uses := ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && e.AsIdent() == "trusted"
	})
	for _, use := range uses {
		parent, ok := use.Parent()
		switch {
		case !ok:
		case parent.Kind() == ast.SelectKind:
			out = append(out, parent.AsSelect().FieldName())
		case parent.Kind() == ast.CallKind && slices.Contains([]string{operators.Index, operators.In}, parent.AsCall().FunctionName()):
			for _, arg := range parent.AsCall().Args() {
				if arg.Kind() != ast.LiteralKind {
					continue
				}
				if name, is := arg.AsLiteral().Value().(string); is {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// knownExtension reports a name that no trusted extension of a certificate can have.
func knownExtension(r *reader, n *yaml.Node, name, what string) {
	known := tutti.ExtensionNames()
	switch short := tutti.ExtensionName(name); {
	case slices.Contains(known, name):
	case name == tutti.SecretExtension || short == tutti.SecretExtension:
		r.report(n, "", "%s: extension %q can be a secret, so Tutti does not read it", what, name)
	case short != name:
		r.report(n, "", "%s: write %s instead of %q", what, short, name)
	case !otherExtension.MatchString(name):
		r.report(n, r.suggest(name, known), "%s: unknown extension %q, no certificate can have it", what, name)
	}
}

// otherExtension matches the OID of a trusted extension.
var otherExtension = regexp.MustCompile(`^` + regexp.QuoteMeta(tutti.ExtensionArc) + `\.[123](\.(0|[1-9][0-9]*))+$`)
