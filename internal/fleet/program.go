package fleet

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// The method `program` returns the Puppet program with which nodes run. The result may be ProgramObserve only if
// the argument `observe` is true.
func (r *reader) program(n *yaml.Node, what string, observe bool) tutti.Program {
	known := []string{string(tutti.ProgramApply), string(tutti.ProgramAgent)}
	if observe {
		known = append(known, string(tutti.ProgramObserve))
	}
	word, ok := r.text(n, what+": mode")
	switch {
	case !ok:
	case slices.Contains(known, word):
		return tutti.Program(word)
	case word == string(tutti.ProgramObserve):
		r.report(n, "set `mode: observe` on the fleet or on a group", "%s: mode: %q: a step starts runs", what, word)
	case word == string(tutti.ModeNoop):
		r.report(n, "add `noop: true` to a run step, or use `tutti run --noop`", "%s: mode: %q", what, word)
	default:
		r.report(n, r.suggest(word, known), "%s: mode: unknown %q", what, word)
	}
	return ""
}

// The limits of runs_every.
const (
	minRunsEvery = time.Minute
	maxRunsEvery = 31 * 24 * time.Hour
)

// runsEvery returns the time between two Puppet runs of observed nodes.
func runsEvery(r *reader, n *yaml.Node, what string) time.Duration {
	d := r.duration(n, what)
	if d != 0 && (d < minRunsEvery || d > maxRunsEvery) {
		r.report(n, "the time between two runs of cron or of the daemon, like 30m", "%s: %s; allowed are %s to %s", what, Duration(d), Duration(minRunsEvery), Duration(maxRunsEvery))
	}
	return d
}

// The limits of remove_after. A shorter time would remove a node that is only restarting.
const (
	minRemoveAfter = 10 * time.Minute
	maxRemoveAfter = 365 * 24 * time.Hour
)

// removeAfter returns how long the nodes of a group may be silent.
func removeAfter(r *reader, n *yaml.Node, what string) time.Duration {
	d := r.duration(n, what)
	if d != 0 && (d < minRemoveAfter || d > maxRemoveAfter) {
		r.report(n, "how long a node may be silent before the server removes it, like 24h", "%s: %s; allowed are %s to %s", what, Duration(d), Duration(minRemoveAfter), Duration(maxRemoveAfter))
	}
	return d
}

// runOptionKeys returns the readers for the keys of a run step that are options of Puppet.
func (r *reader) runOptionKeys(into *tutti.RunOptions) fields {
	return fields{
		"mode":        func(n *yaml.Node) { into.Program = r.program(n, "step", false) },
		"environment": func(n *yaml.Node) { into.Environment = r.environmentName(n, "step: environment") },
		"facts":       func(n *yaml.Node) { into.FreshFacts, into.FactsAhead = r.whichFacts(n) },
		"noop":        func(n *yaml.Node) { into.Noop = r.isTrue(n, "step: noop") },
		"debug":       func(n *yaml.Node) { into.Debug = r.isTrue(n, "step: debug") },
		"tags":        func(n *yaml.Node) { into.Tags = r.tags(n, "step: tags") },
		"skip_tags":   func(n *yaml.Node) { into.SkipTags = r.tags(n, "step: skip_tags") },
	}
}

// whichFacts returns whether the runs of a step collect new facts, or whether all of them may use facts that
// were collected before.
func (r *reader) whichFacts(n *yaml.Node) (fresh, ahead bool) {
	word, ok := r.text(n, "step: facts")
	known := []string{"ahead", "fresh"}
	if ok && !slices.Contains(known, word) {
		r.report(n, r.suggest(word, known), "step: facts: unknown %q", word)
	}
	return word == "fresh", word == "ahead"
}

// runOptions writes the options of a run as in the fleet file.
func runOptions(o tutti.RunOptions) []string {
	var parts []string
	if o.Program != "" {
		parts = append(parts, "mode "+string(o.Program))
	}
	if o.Environment != "" {
		parts = append(parts, "environment "+o.Environment)
	}
	if o.Noop {
		parts = append(parts, "noop")
	}
	if len(o.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(o.Tags, " "))
	}
	if len(o.SkipTags) > 0 {
		parts = append(parts, "skip_tags "+strings.Join(o.SkipTags, " "))
	}
	if o.Debug {
		parts = append(parts, "debug")
	}
	if o.FreshFacts {
		parts = append(parts, "facts fresh")
	}
	if o.FactsAhead {
		parts = append(parts, "facts ahead")
	}
	return parts
}

// CheckRunOptions refuses options that Puppet would misunderstand. CheckRunOptions is for
// callers whose options do not come from a fleet file.
func CheckRunOptions(o tutti.RunOptions) error {
	if len(o.Tags) > maxTags || len(o.SkipTags) > maxTags {
		return tutti.Errorf(tutti.CodeInvalid, "%d tags, and %d to skip: at most %d are possible, because the log stores the tags of each run", len(o.Tags), len(o.SkipTags), maxTags)
	}
	for _, tag := range slices.Concat(o.Tags, o.SkipTags) {
		if !tagRE.MatchString(tag) {
			return tutti.Errorf(tutti.CodeInvalid, "%q is not a tag of Puppet: give each tag by itself; it has letters, digits and `_:.-`", tag)
		}
	}
	if o.Environment != "" && !environmentRE.MatchString(o.Environment) {
		return tutti.Errorf(tutti.CodeInvalid, "%q is not the name of an environment: lower-case letters, digits and '_' only, as in Puppet", o.Environment)
	}
	return nil
}

func (r *reader) environmentName(n *yaml.Node, what string) string {
	name, ok := r.text(n, what)
	if ok && !environmentRE.MatchString(name) {
		r.report(n, "", "%s %q: lower-case letters, digits and '_' only, as in Puppet", what, name)
	}
	return name
}

// tagRE matches the tags that Puppet accepts. Puppet joins tags with commas.
var tagRE = regexp.MustCompile(`^[[:alnum:]_][[:alnum:]_:.-]{0,255}$`)

// maxTags is how many tags a run may have.
const maxTags = 100

func (r *reader) tags(n *yaml.Node, what string) []string {
	var tags []string
	for _, tag := range r.oneOrMore(n, what) {
		if !tagRE.MatchString(tag.string) {
			r.report(tag.at, "give each tag by itself; it has letters, digits and `_:.-`", "%s: %q is not a tag of Puppet", what, tag.string)
		}
		tags = append(tags, tag.string)
	}
	if len(tags) > maxTags {
		r.report(n, "", "%s: %d tags: at most %d are possible, because the log stores the tags of each run", what, len(tags), maxTags)
	}
	return tags
}
