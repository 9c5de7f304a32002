package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
)

// truth has three values, because a node may not know something about itself.
type truth int

const (
	no truth = iota
	unknown
	yes
)

// meet implements `and`, and join implements `or`.
func meet(a, b truth) truth { return min(a, b) }
func join(a, b truth) truth { return max(a, b) }

// condition is the content of a policy's column with facts or classes. `not` and `!` bind tighter than `and`, and `and` binds tighter than
// `or`. If there is no word between two statements, they are joined by `and`. The nil condition is always true.
type condition struct {
	op    string // and, or, not; empty for a statement
	parts []*condition
	statement
}

// statement is `fact OP value` or, without an operator, the name of a class.
type statement struct {
	name  string
	op    string
	value string
	re    *regexp.Regexp // the regex of =~ or of a class
}

// column is the column of a condition. It decides what a word without an operator means.
type column int

const (
	factsColumn   column = iota // a word is an error, but inside a longer condition it is a class
	classesColumn               // a class
)

const maxNested = 50

// operators are the operators of statements. Longer operators come first, because `==` begins with `=`.
var operators = []string{"==", "!=", "<=", ">=", "=~", "=", "<", ">"}

func parseCondition(text string, in column) (*condition, error) {
	tokens, err := tokenize(text)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the column is empty; write * if every value matches")
	}
	if len(tokens) == 1 && tokens[0] == "*" {
		return nil, nil
	}
	compound := slices.ContainsFunc(tokens, isWord)
	p := &conditionParser{tokens: tokens, bare: in == classesColumn || compound}
	c, err := p.or(0)
	if err == nil && len(p.tokens) > 0 {
		err = tutti.Errorf(tutti.CodeInvalid, "%q closes nothing", p.tokens[0])
	}
	return c, err
}

// isWord reports whether a token is a word or bracket of a condition, not a statement.
func isWord(token string) bool {
	return slices.Contains([]string{"(", ")", "and", "or", "not", "!"}, token)
}

// tokenize splits a column into tokens. Regexes and quoted values may have spaces.
func tokenize(text string) ([]string, error) {
	var out []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimLeft(rest, " ") {
		end := 0
		switch {
		case rest[0] == '(' || rest[0] == ')':
			end = 1
		case rest[0] == '!' && !strings.HasPrefix(rest, "!="):
			end = 1
		default:
			var err error
			if end, err = statementEnd(rest); err != nil {
				return nil, err
			}
		}
		out, rest = append(out, rest[:end]), rest[end:]
	}
	return out, nil
}

// statementEnd returns the end of a statement. A statement ends at a space or a bracket that is
// outside of regexes and quotes.
func statementEnd(text string) (int, error) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == ' ' || c == '(' || c == ')':
			return i, nil
		case c == '"' || c == '/' && (i == 0 || text[i-1] == '~'):
			closing := strings.IndexByte(text[i+1:], c)
			if closing < 0 {
				return 0, tutti.Errorf(tutti.CodeInvalid, "%q: %c is not closed", text, c)
			}
			i += 1 + closing
		}
	}
	return len(text), nil
}

type conditionParser struct {
	tokens []string
	bare   bool // a word without an operator is a class
}

func (p *conditionParser) next(words ...string) bool {
	if len(p.tokens) == 0 || !slices.Contains(words, p.tokens[0]) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *conditionParser) or(depth int) (*condition, error) {
	first, err := p.and(depth)
	out := &condition{op: "or", parts: []*condition{first}}
	for err == nil && p.next("or") {
		var c *condition
		c, err = p.and(depth)
		out.parts = append(out.parts, c)
	}
	if len(out.parts) == 1 {
		return first, err
	}
	return out, err
}

func (p *conditionParser) and(depth int) (*condition, error) {
	first, err := p.not(depth)
	out := &condition{op: "and", parts: []*condition{first}}
	for err == nil && len(p.tokens) > 0 && p.tokens[0] != "or" && p.tokens[0] != ")" {
		p.next("and") // `and` may be left out
		var c *condition
		c, err = p.not(depth)
		out.parts = append(out.parts, c)
	}
	if len(out.parts) == 1 {
		return first, err
	}
	return out, err
}

func (p *conditionParser) not(depth int) (*condition, error) {
	if depth > maxNested {
		return nil, tutti.Errorf(tutti.CodeInvalid, "nested more than %d deep", maxNested)
	}
	switch {
	case p.next("not", "!"):
		c, err := p.not(depth + 1)
		return &condition{op: "not", parts: []*condition{c}}, err
	case p.next("("):
		c, err := p.or(depth + 1)
		if err == nil && !p.next(")") {
			err = tutti.Errorf(tutti.CodeInvalid, "a bracket is not closed")
		}
		return c, err
	case len(p.tokens) == 0 || isWord(p.tokens[0]):
		return nil, tutti.Errorf(tutti.CodeInvalid, "a fact or a class is missing before %q", strings.Join(p.tokens, " "))
	}
	text := p.tokens[0]
	p.tokens = p.tokens[1:]
	s, err := p.statement(text)
	return &condition{statement: s}, err
}

var (
	factRE  = regexp.MustCompile(`^[a-zA-Z0-9_.:-]+$`)
	classRE = regexp.MustCompile(`^(::)?[a-z0-9_]+(::[a-z0-9_]+)*$`)
)

func (p *conditionParser) statement(text string) (statement, error) {
	for i := range text {
		for _, op := range operators {
			if text[0] == '/' || !strings.HasPrefix(text[i:], op) {
				continue
			}
			s := statement{name: text[:i], op: strings.Replace(op, "==", "=", 1), value: unquote(text[i+len(op):])}
			if !factRE.MatchString(s.name) || s.value == "" {
				return s, tutti.Errorf(tutti.CodeInvalid, "%q: write a condition on a fact without spaces, like os.family=Debian", text)
			}
			var err error
			if op == "=~" {
				s.re, err = regexp.Compile(strings.TrimSuffix(strings.TrimPrefix(s.value, "/"), "/"))
			}
			return s, tutti.Wrap(tutti.CodeInvalid, err, "%q", text)
		}
	}
	if !p.bare {
		return statement{}, tutti.Errorf(tutti.CodeInvalid, "%q: not fact=value, and not *", text)
	}
	if text[0] == '/' {
		re, err := regexp.Compile(strings.Trim(text, "/"))
		return statement{re: re}, tutti.Wrap(tutti.CodeInvalid, err, "%q", text)
	}
	name := strings.ToLower(text)
	if !classRE.MatchString(name) {
		return statement{}, tutti.Errorf(tutti.CodeInvalid, "%q is neither a class nor fact=value (calls of data plugins are not known here)", text)
	}
	return statement{name: strings.TrimPrefix(name, "::")}, nil
}

func unquote(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

func (c *condition) eval(q Question) truth {
	if c == nil {
		return yes
	}
	switch c.op {
	case "not":
		return yes - c.parts[0].eval(q)
	case "and", "or":
		out := c.parts[0].eval(q)
		for _, part := range c.parts[1:] {
			if v := part.eval(q); c.op == "and" {
				out = meet(out, v)
			} else {
				out = join(out, v)
			}
		}
		return out
	}
	return c.hold(q)
}

// The method `hold` returns whether a statement is true for the node.
func (s statement) hold(q Question) truth {
	if s.op == "" {
		classes, known := q.Classes()
		if !known {
			return unknown
		}
		return truthOf(slices.ContainsFunc(classes, func(name string) bool {
			return s.re == nil && name == s.name || s.re != nil && s.re.MatchString(name)
		}))
	}
	facts, known := q.Facts()
	if !known {
		return unknown
	}
	value, there := factOf(facts, s.name)
	switch s.op {
	case "=":
		return truthOf(there && equal(value, s.value))
	case "!=":
		return truthOf(!there || !equal(value, s.value))
	case "=~":
		return truthOf(there && s.re.MatchString(value))
	}
	a, errA := strconv.ParseFloat(value, 64)
	b, errB := strconv.ParseFloat(s.value, 64)
	if !there || errA != nil || errB != nil {
		return unknown // the values cannot be compared
	}
	switch s.op {
	case "<":
		return truthOf(a < b)
	case "<=":
		return truthOf(a <= b)
	case ">":
		return truthOf(a > b)
	}
	return truthOf(a >= b)
}

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

// equal compares numbers as numbers, and everything else as text.
func equal(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return a == b || errX == nil && errY == nil && x == y
}

// factOf finds a fact by its name or, in structured facts, by its path. A structured fact
// itself has no value.
func factOf(facts map[string]any, name string) (string, bool) {
	var at any = facts
	if v, ok := facts[name]; ok {
		at = v
	} else {
		for part := range strings.SplitSeq(name, ".") {
			m, ok := at.(map[string]any)
			if !ok {
				return "", false
			}
			if at, ok = m[part]; !ok {
				return "", false
			}
		}
	}
	switch v := at.(type) {
	case map[string]any, []any, nil:
		return "", false
	case string:
		return v, true
	default:
		return fmt.Sprint(v), true
	}
}
