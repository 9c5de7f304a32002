package fleet

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// The method `exclusive` reads the key `exclusive` of a plan, which is `true` or a mapping. The method returns nil
// if the plan does not have the key.
func (r *reader) exclusive(n *yaml.Node, plan tutti.Plan) *tutti.Exclusive {
	if n == nil {
		return nil
	}
	what := "plan " + string(plan.Name) + ": exclusive"
	out := tutti.DefaultExclusive("")
	reported := len(r.problems)
	if at := follow(n); at.Kind == yaml.ScalarNode {
		if !r.isTrue(n, what) {
			return nil
		}
	} else {
		r.mapping(n, what, fields{
			"reason":     func(n *yaml.Node) { out.Reason, _ = r.text(n, what+": reason") },
			"lease":      func(n *yaml.Node) { out.Lease = r.duration(n, what+": lease") },
			"wait":       func(n *yaml.Node) { out.Wait = r.duration(n, what+": wait") },
			"on_failure": func(n *yaml.Node) { out.Keep = r.onFailure(n, what) },
		})
	}
	if len(r.problems) > reported {
		return nil
	}
	if err := out.Validate(); err != nil {
		r.reportErr(n, "plan "+string(plan.Name)+": ", err)
	}
	at := slices.IndexFunc(plan.Steps, func(s tutti.Step) bool { return s.ActsOn() == tutti.NodesFound })
	switch {
	case at >= 0:
		r.report(n, "use run steps", "%s: step %s converges: its nodes are not known before the job", what, plan.Steps[at].Name)
	case !slices.ContainsFunc(plan.Steps, func(s tutti.Step) bool { return s.ActsOn() == tutti.NodesListed }):
		r.report(n, "remove it", "%s: the plan runs on no node", what)
	}
	return out
}

func (r *reader) onFailure(n *yaml.Node, what string) bool {
	word, ok := r.text(n, what+": on_failure")
	known := []string{"restore", "keep"}
	if ok && !slices.Contains(known, word) {
		r.report(n, r.suggest(word, known), "%s: on_failure: %q is not known; use restore or keep", what, word)
	}
	return word == "keep"
}

func exclusiveWords(x *tutti.Exclusive) string {
	if x == nil {
		return ""
	}
	text := fmt.Sprintf(", exclusive: its nodes are disabled for all other runs, lease %s", Duration(x.Lease))
	if x.Keep {
		text += ", and stay disabled if the job fails"
	}
	if x.Reason != "" {
		text += " (" + x.Reason + ")"
	}
	return text
}
