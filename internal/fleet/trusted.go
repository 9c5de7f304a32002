package fleet

import (
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

const (
	maxTrustedText = 4 << 10 // bytes of a condition
	// maxTrustedCost limits the work for one node, in the units of CEL. A unit is about one operation.
	maxTrustedCost = 10_000
)

// trusted is a condition over what the Puppet certificate of a node says (ADR 0032). The CA has signed the certificate,
// so the node cannot choose its groups.
type trusted struct {
	group   tutti.GroupName
	program cel.Program
}

func compileTrusted(text string) (cel.Program, error) {
	if len(text) > maxTrustedText {
		return nil, tutti.Errorf(tutti.CodeInvalid, "a condition of %d bytes, at most %d", len(text), maxTrustedText)
	}
	env, err := cel.NewEnv(
		cel.Variable("certname", cel.StringType),
		cel.Variable("trusted", cel.MapType(cel.StringType, cel.StringType)),
		cel.ParserExpressionSizeLimit(maxTrustedText),
	)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInternal, err, "conditions of groups")
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s", strings.TrimSpace(issues.Err().Error()))
	}
	if checked.OutputType() != cel.BoolType {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the condition is a %s, and must be true or false", checked.OutputType())
	}
	program, err := env.Program(checked, cel.CostLimit(maxTrustedCost))
	return program, tutti.Wrap(tutti.CodeInvalid, err, "the condition %q", text)
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
	if _, err := compileTrusted(text); err != nil {
		r.report(n, `like 'trusted.pp_role == "web"', with certname and trusted; a fact that the node itself reports cannot decide about grants`, "%s: %s", what, err.Error())
	}
	return text
}
