package fleet

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// The method `reaction` reads how the fleet reacts. Keys that the file does not have get their defaults.
func (r *reader) reaction(n *yaml.Node) *tutti.Reaction {
	out := &tutti.Reaction{
		Window: tutti.DefaultWindow, Wide: tutti.DefaultWide, Safety: tutti.DefaultSafety, AskAbove: tutti.DefaultAskAbove,
	}
	if n == nil {
		return out
	}
	var times []*yaml.Node
	reported := len(r.problems)
	r.mapping(n, "reaction", fields{
		"window": func(n *yaml.Node) { times, out.Window = append(times, n), r.duration(n, "reaction: window") },
		"wide":   func(n *yaml.Node) { times, out.Wide = append(times, n), r.duration(n, "reaction: wide") },
		"safety": func(n *yaml.Node) { out.Safety = r.safety(n) },
		"limit":  func(n *yaml.Node) { out.Limit = r.limit(n, "reaction: limit") },
		"ask_above": func(n *yaml.Node) {
			out.AskAbove = r.whole(n, "reaction: ask_above", 0, "0 asks before every change that causes a run")
		},
		"code":  func(n *yaml.Node) { out.Code = r.codeReaction(n) },
		"bound": func(n *yaml.Node) { out.Bound = r.reactionBound(n) },
		"reads": func(n *yaml.Node) { out.Reads = r.readReactions(n) },
	})
	if len(r.problems) == reported && out.Wide < out.Window {
		r.report(times[len(times)-1], "`wide` is the time for answers that many nodes read, and `window` is the time for all other answers",
			"reaction: wide, %s, is shorter than window, %s", Duration(out.Wide), Duration(out.Window))
	}
	return out
}

// codeReaction reads `now`, `confirm`, or a mapping with the number of canaries.
func (r *reader) codeReaction(n *yaml.Node) tutti.CodeReaction {
	const what, canary = "reaction: code", "reaction: code: canary"
	var out tutti.CodeReaction
	if follow(n).Kind == yaml.MappingNode {
		said := false
		if r.mapping(n, what, fields{"canary": func(n *yaml.Node) {
			said = true
			out.Canary = r.whole(n, canary, 1, "give the number of nodes that run with new code before the others")
			if out.Canary > tutti.MaxCanary {
				r.report(n, "`code: confirm` holds new code for all nodes", "%s: %d, at most %d", canary, out.Canary, tutti.MaxCanary)
			}
		}}) && !said {
			r.report(n, "like `code: {canary: 3}`", "%s: `canary` is missing", what)
		}
		return out
	}
	word, ok := r.text(n, what)
	switch {
	case word == "confirm":
		out.Confirm = true
	case ok && word != "now":
		r.report(n, "like `code: now`, `code: confirm` or `code: {canary: 3}`", "%s: %q is not a reaction to code", what, word)
	}
	return out
}

// reactionBound reads a number and a duration, like 6/1h.
func (r *reader) reactionBound(n *yaml.Node) tutti.ReactionBound {
	const what, hint = "reaction: bound", "like 6/1h: a node reacts to one question six times an hour"
	word, ok := r.text(n, what)
	if !ok {
		return tutti.ReactionBound{}
	}
	times, per, cut := strings.Cut(word, "/")
	number, err := strconv.Atoi(times)
	d, wrong := time.ParseDuration(per)
	switch {
	case !cut || err != nil || wrong != nil:
		r.report(n, hint, "%s: %q is not a number and a duration", what, word)
	case number < 1 || number > tutti.MaxReactions:
		r.report(n, hint, "%s: %d times; allowed are 1 to %d", what, number, tutti.MaxReactions)
	case d < time.Minute || d > tutti.MaxReactionTime:
		r.report(n, hint, "%s: within %s; allowed are 1m to %s", what, Duration(d), Duration(tutti.MaxReactionTime))
	}
	return tutti.ReactionBound{Times: number, Per: d}
}

// The method `safety` reads a duration or `never`.
func (r *reader) safety(n *yaml.Node) time.Duration {
	if isNever(n) {
		return 0
	}
	return r.duration(n, "reaction: safety")
}

func isNever(n *yaml.Node) bool {
	at := follow(n)
	return at.Kind == yaml.ScalarNode && at.ShortTag() == "!!str" && at.Value == "never"
}

// A restart of the server and a new connection take less time than minSafetyWhenAway.
const minSafetyWhenAway = time.Minute

// safetyWhenAway reads a duration or `never`.
func (r *reader) safetyWhenAway(n *yaml.Node, what string) time.Duration {
	if isNever(n) {
		return tutti.Never
	}
	d := r.duration(n, what)
	if d > 0 && d < minSafetyWhenAway {
		r.report(n, "like 12h: a server that restarts does not count as away", "%s: %s, at least %s", what, Duration(d), Duration(minSafetyWhenAway))
	}
	return d
}

// readReactions reads the rules. The first rule that matches is used. Therefore it is an error if a rule can never be
// the first match.
func (r *reader) readReactions(n *yaml.Node) []tutti.ReadReaction {
	const what = "reaction: reads"
	elements, _ := r.list(n, what)
	var rules []tutti.ReadReaction
	lines := make([]int, 0, len(elements))
	for _, at := range elements {
		rule := r.readReaction(at)
		before := slices.IndexFunc(rules, rule.CoveredBy)
		if before >= 0 {
			r.report(at, "put this rule before that one, or remove it", "%s: this rule never applies: the rule in line %d covers it", what, lines[before])
		}
		rules, lines = append(rules, rule), append(lines, follow(at).Line)
		if len(rules) > maxReads {
			r.report(at, "", "%s: more than %d", what, maxReads)
			return nil
		}
	}
	return rules
}

// maxReads limits the number of rules, because each rule is compared with all earlier rules, and
// each change is compared with all rules.
const maxReads = 1000

func (r *reader) readReaction(at *yaml.Node) tutti.ReadReaction {
	const what = "reaction: reads"
	var rule tutti.ReadReaction
	var typeAt, keyAt, whenAt *yaml.Node
	complete := r.mapping(at, what, fields{
		"type": func(n *yaml.Node) { typeAt, rule.Type = n, r.readType(n) },
		"key":  func(n *yaml.Node) { keyAt, rule.Key = n, r.readKey(n) },
		"when": func(n *yaml.Node) { whenAt, rule.When = n, r.when(n) },
	})
	if complete && (typeAt == nil) == (keyAt == nil) {
		r.report(at, "like `{type: Sshkey, when: window}` or `{key: swift/**, when: now}`", "%s: exactly one of `type` and `key` is needed", what)
	}
	if complete && whenAt == nil {
		r.report(at, "add `when: now`, `when: window` or `when: scheduled`", "%s: `when` is missing", what)
	}
	return rule
}

func (r *reader) readType(n *yaml.Node) string {
	name, ok := r.text(n, "reaction: reads: type")
	if ok {
		if err := tutti.ValidateType(name); err != nil {
			r.report(n, capitalHint(name), "reaction: reads: type: %s", err.Error())
		}
	}
	return name
}

func (r *reader) readKey(n *yaml.Node) string {
	key, ok := r.text(n, "reaction: reads: key")
	if !ok {
		return ""
	}
	if err := tutti.ValidatePattern(key); err != nil {
		hint := "like swift/**, or hiera/ntp::servers"
		if class, deep := strings.CutSuffix(key, "::**"); deep && tutti.ValidateKey(class) == nil {
			hint = "did you mean \"" + class + "/**\"? It covers the keys of a class"
		}
		r.report(n, hint, "reaction: reads: key: %s", err.Error())
		return ""
	}
	return key
}

func (r *reader) when(n *yaml.Node) tutti.ReactionTime {
	word, ok := r.text(n, "reaction: reads: when")
	known := []string{string(tutti.ReactNow), string(tutti.ReactWindow), string(tutti.ReactScheduled)}
	if ok && !slices.Contains(known, word) {
		r.report(n, r.suggest(word, known), "reaction: reads: when: %q is not a time of reaction", word)
	}
	return tutti.ReactionTime(word)
}
