package selector

import (
	"maps"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/tutti-project/tutti"
)

// The method `groups` returns the groups of a node as a list of CEL. If nobody knows whether the node is in a group, an
// expression that depends on this group is an error for this node, and not no.
func (n Node) groups() any {
	if len(n.Undecided) == 0 {
		return words(n.Groups)
	}
	return undecided{types.NewStringList(types.DefaultTypeAdapter, words(n.Groups)), n.Undecided}
}

// The method `whole` returns an error if nobody knows the whole list of groups of a node.
func (n Node) whole() error {
	if len(n.Undecided) == 0 {
		return nil
	}
	group := slices.Min(slices.Collect(maps.Keys(n.Undecided)))
	return tutti.Errorf(tutti.CodeInvalid, "nobody knows whether the node is in group %s: %s", group, n.Undecided[group])
}

// wholeGroups reports whether an expression needs the whole list of groups. An expression that asks for single groups does
// not need it: "web" in groups, or groups.exists(g, …).
func wholeGroups(checked *ast.AST) bool {
	uses := ast.MatchDescendants(ast.NavigateAST(checked), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && e.AsIdent() == "groups"
	})
	return slices.ContainsFunc(uses, func(use ast.NavigableExpr) bool {
		parent, ok := use.Parent()
		switch {
		case !ok:
			return true
		case parent.Kind() == ast.ComprehensionKind:
			return parent.AsComprehension().IterRange().ID() != use.ID()
		case parent.Kind() == ast.CallKind && parent.AsCall().FunctionName() == operators.In:
			return parent.AsCall().Args()[1].ID() != use.ID()
		}
		return true
	})
}

// The type `undecided` is a list of groups that may be incomplete.
type undecided struct {
	traits.Lister
	why map[tutti.GroupName]string
}

func (u undecided) err(group tutti.GroupName) ref.Val {
	return types.NewErr("nobody knows whether the node is in group %s: %s", string(group), u.why[group])
}

// Contains implements traits.Container.
func (u undecided) Contains(value ref.Val) ref.Val {
	if name, is := value.Value().(string); is && u.why[tutti.GroupName(name)] != "" {
		return u.err(tutti.GroupName(name))
	}
	return u.Lister.Contains(value)
}

// Size implements traits.Sizer. CEL needs the size to limit the cost. An expression that uses the size itself is refused (see
// wholeGroups).
func (u undecided) Size() ref.Val {
	known, _ := u.Lister.Size().(types.Int)
	return known + types.Int(len(u.why))
}

// Get implements traits.Indexer. After the known groups come errors, one for each group that is not decided. So `exists` is
// true only because of a known group, and `all` is false only because of a known group.
func (u undecided) Get(index ref.Val) ref.Val {
	known, _ := u.Lister.Size().(types.Int)
	at, is := index.(types.Int)
	if !is || at < known || at-known >= types.Int(len(u.why)) {
		return u.Lister.Get(index)
	}
	return u.err(slices.Sorted(maps.Keys(u.why))[at-known])
}

// Iterator implements traits.Iterable.
func (u undecided) Iterator() traits.Iterator { return &each{u.Lister.Iterator(), u, 0} }

// The type `each` visits all elements of a list.
type each struct {
	traits.Iterator
	of   undecided
	next types.Int
}

// HasNext implements traits.Iterator.
func (e *each) HasNext() ref.Val { return types.Bool(e.next < e.of.Size().(types.Int)) }

// Next implements traits.Iterator.
func (e *each) Next() ref.Val {
	e.next++
	return e.of.Get(e.next - 1)
}
