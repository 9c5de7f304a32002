package selector

import (
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/tutti-project/tutti"
)

// Row is a parsed expression about a row of a table. A Row is safe for concurrent use.
type Row struct {
	subject string
	program cel.Program
	whole   bool // the expression needs the whole list of groups
}

// ParseRow reads an expression in which the variable `subject` is a row. The expression can also use node, groups, now
// and the function olderThan. The empty expression is true for every row. ParseRow returns CodeInvalid with the place
// of the error.
func ParseRow(subject, text string) (*Row, error) {
	if strings.TrimSpace(text) == "" {
		text = "true"
	}
	if len(text) > MaxText {
		return nil, tutti.Errorf(tutti.CodeInvalid, "--where: %d bytes, at most %d", len(text), MaxText)
	}
	env, err := cel.NewEnv(append([]cel.EnvOption{
		cel.Variable("node", cel.StringType),
		cel.Variable("groups", cel.ListType(cel.StringType)),
		cel.Variable("now", cel.TimestampType),
		cel.Variable(subject, cel.MapType(cel.StringType, cel.DynType)),
		cel.Function("olderThan", cel.Overload("olderThan_strings", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
			cel.BinaryBinding(olderThan))),
	}, common...)...)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInternal, err, "rows")
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		hint := ""
		if strings.Contains(issues.Err().Error(), "undeclared reference") {
			hint = "\nthere are node, groups, now, " + subject + " and olderThan(version, version); strings have quotes"
		}
		return nil, tutti.Errorf(tutti.CodeInvalid, "--where: %s%s", strings.TrimSpace(issues.Err().Error()), hint)
	}
	if out := checked.OutputType(); out != cel.BoolType && out != cel.DynType {
		return nil, tutti.Errorf(tutti.CodeInvalid, "--where %q is a %s; it has to be true or false for a row", text, out)
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptPartialEval))
	return &Row{subject, program, wholeGroups(checked.NativeRep())}, tutti.Wrap(tutti.CodeInvalid, err, "--where %q", text)
}

// Holds reports whether the expression is true for a row of a node. The argument hidden has the names of parameters
// that the row has, but whose values are not known. An error is about this row only, and is not a no.
func (r *Row) Holds(n Node, row map[string]any, hidden []string, now time.Time) (bool, error) {
	if err := n.whole(); r.whole && err != nil {
		return false, err
	}
	var input any = map[string]any{"node": string(n.Name), "groups": n.groups(), "now": now, r.subject: row}
	if len(hidden) > 0 {
		var unknown []*cel.AttributePatternType
		for _, name := range hidden {
			unknown = append(unknown, cel.AttributePattern(r.subject).QualString("parameters").QualString(name))
		}
		var err error
		if input, err = cel.PartialVars(input, unknown...); err != nil {
			return false, tutti.Wrap(tutti.CodeInternal, err, "--where")
		}
	}
	out, _, err := r.program.Eval(input)
	if err != nil {
		hint := ""
		if strings.Contains(err.Error(), "no such key") {
			hint = "; if not all rows have it, check for it first: has(" + r.subject + ".NAME) && …"
		}
		return false, tutti.Errorf(tutti.CodeInvalid, "%s%s", err.Error(), hint)
	}
	if types.IsUnknown(out) {
		return false, tutti.Errorf(tutti.CodeInvalid, "it depends on a value that the node does not send, because it may be a secret: %s",
			strings.Join(hidden, ", "))
	}
	yes, is := out.Value().(bool)
	if !is {
		return false, tutti.Errorf(tutti.CodeInvalid, "--where is a %s; it has to be true or false for a row", out.Type().TypeName())
	}
	return yes, nil
}

// The function `olderThan` compares versions in Puppet's order. A text without a digit, such as `installed`, is no version.
func olderThan(a, b ref.Val) ref.Val {
	x, _ := a.Value().(string)
	y, _ := b.Value().(string)
	for _, text := range []string{x, y} {
		if !strings.ContainsAny(text, "0123456789") {
			return types.NewErr("olderThan: %q is no version", text)
		}
	}
	return types.Bool(CompareVersions(x, y) < 0)
}
