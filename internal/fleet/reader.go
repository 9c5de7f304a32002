package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// maxProblems is how many problems one error lists at most.
const maxProblems = 50

// reader collects the problems of a file while it reads the file.
type reader struct {
	file     string
	known    members
	problems []problem
	factual  []wheres // conditions of groups over facts
}

type problem struct {
	line, column  int
	message, hint string
}

// The type `fields` contains the keys that a mapping may have, each with its reader.
type fields map[string]func(value *yaml.Node)

// The type `text` is a scalar with its place.
type text struct {
	string
	at *yaml.Node
}

func (r *reader) report(at *yaml.Node, hint, format string, args ...any) {
	r.reportAt(max(at.Line, 1), max(at.Column, 1), hint, format, args...)
}

func (r *reader) reportAt(line, column int, hint, format string, args ...any) {
	r.problems = append(r.problems, problem{line, column, oneLine(fmt.Sprintf(format, args...)), oneLine(hint)})
}

// maxProblem is the largest text of one problem, in bytes. The limit is needed because the text
// quotes the file.
const maxProblem = 1000

func oneLine(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if len(text) > maxProblem {
		return strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	return text
}

// reportErr reports a name that its method Validate has refused.
func (r *reader) reportErr(at *yaml.Node, what string, err error) {
	r.report(at, "", "%s%s", what, err.Error())
}

// The method `suggest` returns a hint with the known word that is most similar. If there are more than
// maxProblems problems, the result is empty, because a hint takes time and nobody would see it.
func (r *reader) suggest(word string, known []string) string {
	if len(r.problems) > maxProblems {
		return ""
	}
	return suggest(word, known)
}

// The method `err` returns all problems as one error, or nil if there are no problems.
func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	// The problems of an anchored value appear only once, even if the value is used twice.
	problems := slices.Compact(r.problems)
	var lines []string
	for i, p := range problems {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("%s:%d: there are %d more problems from here on", r.file, p.line, len(problems)-i))
			break
		}
		line := fmt.Sprintf("%s:%d: %s", r.file, p.line, p.message)
		if p.hint != "" {
			line += " (" + p.hint + ")"
		}
		lines = append(lines, line)
	}
	return &tutti.Error{Code: tutti.CodeInvalid, Message: strings.Join(lines, "\n")}
}

// The method `mapping` passes each value of a mapping to the reader of its key, and reports unknown keys. The
// method returns false if it has reported a problem of the mapping. The caller should then report no missing
// keys, because such a key may only be misspelt.
func (r *reader) mapping(n *yaml.Node, what string, known fields) bool {
	entries, ok := r.entries(n, what)
	for _, e := range entries {
		read, found := known[e.key.string]
		if !found {
			r.report(e.key.at, r.suggest(e.key.string, slices.Collect(maps.Keys(known))), "%s: unknown key %q", what, e.key.string)
			ok = false
			continue
		}
		read(e.value)
	}
	return ok
}

type entry struct {
	key   text
	value *yaml.Node
}

// The method `entries` returns the keys and values of a mapping in the order of the file. If a key occurs twice, the
// function reports this and returns the key once. The method returns false if it has reported a problem.
func (r *reader) entries(n *yaml.Node, what string) ([]entry, bool) {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		r.wrong(n, what, "a mapping (key: value)")
		return nil, false
	}
	reported := len(r.problems)
	first := map[string]int{}
	var entries []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		at := n.Content[i]
		if at.ShortTag() == "!!merge" {
			r.report(at, "use an alias (*name) for a whole value", "%s: merge keys (<<) are not supported", what)
			continue
		}
		key, ok := r.text(at, what+": key")
		if !ok {
			continue
		}
		if line, twice := first[key]; twice {
			r.report(at, "keep one of them", "%s: duplicate key %q, first in line %d", what, key, line)
			continue
		}
		first[key] = at.Line
		entries = append(entries, entry{text{key, at}, n.Content[i+1]})
	}
	return entries, len(r.problems) == reported
}

// The method `list` returns the elements of a list. The list must not be empty.
func (r *reader) list(n *yaml.Node, what string) ([]*yaml.Node, bool) {
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, what, "a list")
		return nil, false
	}
	if len(n.Content) == 0 {
		r.report(n, "leave the key out", "%s: the list is empty", what)
		return nil, false
	}
	return n.Content, true
}

// The method `texts` returns the strings of a list. It reports duplicates.
func (r *reader) texts(n *yaml.Node, what string) []text {
	elements, _ := r.list(n, what)
	return r.unique(elements, what)
}

// oneOrMore returns the strings of a list, or a list with a single string.
func (r *reader) oneOrMore(n *yaml.Node, what string) []text {
	if at := follow(n); at.Kind == yaml.ScalarNode && at.ShortTag() == "!!str" {
		return r.unique([]*yaml.Node{at}, what)
	}
	return r.texts(n, what)
}

func (r *reader) unique(elements []*yaml.Node, what string) []text {
	seen := map[string]bool{}
	var found []text
	for _, at := range elements {
		value, ok := r.text(at, what)
		if !ok {
			continue
		}
		if seen[value] {
			r.report(at, "", "%s: %q is there twice", what, value)
			continue
		}
		seen[value] = true
		found = append(found, text{value, at})
	}
	return found
}

// The method `text` returns a string. The method reports values that look like a string but are of another type (a
// number, yes).
func (r *reader) text(n *yaml.Node, what string) (string, bool) {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.wrong(n, what, "text")
		return "", false
	}
	return n.Value, true
}

// The method `wrong` reports a value with the wrong type.
func (r *reader) wrong(n *yaml.Node, what, want string) {
	hint := ""
	got := "a value of type " + n.ShortTag()
	switch {
	case n.Kind == yaml.MappingNode:
		got = "a mapping"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case n.ShortTag() == "!!null":
		got, hint = "nothing", "remove the key, or give it a value"
	case n.ShortTag() == "!!str":
		got = fmt.Sprintf("the text %q", n.Value)
	case n.Kind == yaml.ScalarNode:
		got = fmt.Sprintf("%s %s", strings.TrimPrefix(n.ShortTag(), "!!"), n.Value)
		if want == "text" {
			hint = fmt.Sprintf("quote it: %q", n.Value)
		}
	}
	r.report(n, hint, "%s: %s needed, got %s", what, want, got)
}

// maxValues limits the number of values in a file. Each alias counts as the values for which it stands. A file of
// MaxSource bytes without aliases has fewer values. Without the limit, a file of this size with aliases could take
// gigabytes of memory.
const maxValues = 2_000_000

// The function `expanded` returns how many values a YAML node has. Each alias counts as the values for which it
// stands. The function stops counting soon after maxValues. The map has the nodes that were counted already. An alias
// inside its own value counts as one value, and the reader of the alias refuses it.
func expanded(n *yaml.Node, counted map[*yaml.Node]int) int {
	n = follow(n)
	if all, ok := counted[n]; ok {
		return all
	}
	counted[n] = 1 // for an alias of n inside n
	all := 1
	for _, of := range n.Content {
		if all += expanded(of, counted); all > maxValues {
			return all
		}
	}
	counted[n] = all
	return all
}

// The function `follow` returns the node to which an alias refers.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}
