// Package fleet parses fleet files. The package turns the text of a tutti.yaml into a checked tutti.Fleet, or
// reports all problems, each with its line. The package also computes which nodes are in a group, resolves the
// targets of a plan to nodes, and renders a plan for people. The package does not read files itself.
//
// The document docs/howto/fleet-file.md describes the keys of the file, their defaults and examples.
package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/seal"
)

// MaxSource is the largest size of a fleet file, in bytes.
const MaxSource = 1 << 20

// Parse reads a fleet file. The parameter `name` is used only in messages. An error is a tutti.Error
// with CodeInvalid. The message has one line `name:line: what is wrong (what to do)` for each problem,
// in the order of the lines. After an error the caller must not use the fleet.
func Parse(name string, source []byte) (tutti.Fleet, error) {
	r := &reader{file: name}
	if len(source) > MaxSource {
		r.reportAt(1, 1, "", "%d bytes, at most %d", len(source), MaxSource)
		return tutti.Fleet{}, r.err()
	}
	root := r.document(source)
	if root == nil {
		return tutti.Fleet{}, r.err()
	}
	fleet := r.fleet(root)
	if err := r.err(); err != nil {
		return tutti.Fleet{}, err
	}
	return fleet, nil
}

// The method `document` returns the only document of the source. If there is a problem, the method reports the
// problem and returns nil.
func (r *reader) document(source []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	var doc, more yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		r.reportAt(1, 1, "begin with `fleet: NAME`", "the file is empty")
		return nil
	}
	if err == nil {
		err = decoder.Decode(&more)
		if errors.Is(err, io.EOF) {
			if expanded(doc.Content[0], map[*yaml.Node]int{}) > maxValues {
				r.report(doc.Content[0], "use fewer aliases", "with its aliases the file has more than %d values", maxValues)
				return nil
			}
			return doc.Content[0]
		}
		if err == nil {
			r.report(&more, "one fleet is one document: remove `---`", "a second YAML document")
			return nil
		}
	}
	line, message := syntaxError(source, err)
	r.reportAt(line, 1, "", "not YAML: %s", message)
	return nil
}

// The method `fleet` reads the whole file. The method reads groups first, wherever they are in the file, because
// grants, plans and order refer to groups.
func (r *reader) fleet(root *yaml.Node) tutti.Fleet {
	fleet := tutti.Fleet{Environment: tutti.Environment{Name: "production", Path: "./code"}}
	var others, grants, access, plans, reactive, reaction, order, join *yaml.Node
	named, code := false, false
	ok := r.mapping(root, "the fleet file", fields{
		"fleet":        func(n *yaml.Node) { named = true; fleet.Name = r.fleetName(n) },
		"environment":  func(n *yaml.Node) { code = true; r.environment(n, &fleet.Environment) },
		"environments": func(n *yaml.Node) { others = n },
		"mode":         func(n *yaml.Node) { fleet.Program = r.program(n, "the fleet file", true) },
		"groups":       func(n *yaml.Node) { fleet.Groups = r.groups(n) },
		"grants":       func(n *yaml.Node) { grants = n },
		"access":       func(n *yaml.Node) { access = n },
		"plans":        func(n *yaml.Node) { plans = n },
		"reactive":     func(n *yaml.Node) { reactive = n },
		"reaction":     func(n *yaml.Node) { reaction = n },
		"order":        func(n *yaml.Node) { order = n },
		"replaced":     func(n *yaml.Node) { fleet.KeepReplaced = r.keepReplaced(n) },
		"facts":        func(n *yaml.Node) { fleet.VolatileFacts = r.facts(n) },
		"inventory":    func(n *yaml.Node) { fleet.Inventory = inventory(r, n) },
		"secrets":      func(n *yaml.Node) { fleet.Secrets = r.secrets(n) },
		"join":         func(n *yaml.Node) { join = n },

		"safety_when_away": func(n *yaml.Node) { fleet.SafetyWhenAway = r.safetyWhenAway(n, "safety_when_away") },
		"runs_every":       func(n *yaml.Node) { fleet.RunsEvery = runsEvery(r, n, "runs_every") },
	})
	if ok && !named {
		r.report(root, "begin with `fleet: NAME`", "the fleet has no name")
	}
	if (fleet.Program == tutti.ProgramAgent || fleet.Program == tutti.ProgramObserve) && !code {
		fleet.Environment = tutti.Environment{} // the code is not Tutti's, for example on the Puppet Server
	}
	if others != nil {
		fleet.Environments = r.environments(others, fleet.Environment.Name)
	}
	factsHeld(r, fleet.Inventory)
	r.known = membersOf(fleet.Groups)
	if grants != nil {
		fleet.Grants = r.grants(grants)
	}
	if plans != nil {
		fleet.Plans = r.plans(plans)
	}
	if access != nil {
		fleet.Access = r.access(access, fleet.Plans)
	}
	if join != nil {
		fleet.Join = joinRules(r, join, fleet.Groups)
	}
	if order != nil {
		fleet.Order = r.order(order)
	}
	if read := r.reaction(reaction); reactive != nil && r.isTrue(reactive, "reactive") {
		fleet.Reaction = read
	}
	if ok && reactive == nil && reaction != nil {
		r.report(reaction, "add `reactive: true`", "reaction: the fleet does not react")
	}
	return fleet
}

func (r *reader) fleetName(n *yaml.Node) string {
	name, ok := r.text(n, "fleet")
	if ok && tutti.GroupName(name).Validate() != nil {
		r.report(n, "", "fleet name %q: lower-case letters, digits, '_' and '-' only, at most 63", name)
	}
	return name
}

// The method `secrets` reads the public recovery key. The operators keep the private half of the key (ADR 0025).
func (r *reader) secrets(n *yaml.Node) *tutti.SecretRules {
	const hint = "`tutti secret init` prints the line"
	out := tutti.SecretRules{}
	complete := r.mapping(n, "secrets", fields{
		"recovery": func(n *yaml.Node) {
			key, ok := r.text(n, "secrets: recovery")
			if err := seal.ValidateRecovery(key); ok && err != nil {
				r.report(n, hint, "secrets: recovery: %s", err.Error())
			}
			out.Recovery = key
		},
	})
	if complete && out.Recovery == "" {
		r.report(n, hint, "secrets: the recovery key is missing")
	}
	return &out
}

// The method `facts` reads the names of volatile facts, whose changes the server ignores.
func (r *reader) facts(n *yaml.Node) (volatile []string) {
	r.mapping(n, "facts", fields{
		"volatile": func(n *yaml.Node) {
			for _, name := range r.oneOrMore(n, "facts: volatile") {
				if !factRE.MatchString(name.string) {
					r.report(name.at, "the name of a whole fact, like `uptime`: no dots", "facts: volatile: %q is not the name of a fact", name.string)
				}
				volatile = append(volatile, name.string)
			}
		},
	})
	return volatile
}

// factRE matches the names of facts that modules use.
var factRE = regexp.MustCompile(`^[A-Za-z0-9_:-]{1,200}$`)

// keepReplaced reports whether the publications of a replaced machine stay.
func (r *reader) keepReplaced(n *yaml.Node) bool {
	text, ok := r.text(n, "replaced")
	if ok && text != "keep" && text != "withdraw" {
		r.report(n, "`withdraw`, which is the default, or `keep`", "replaced: unknown %q", text)
	}
	return text == "keep"
}

var environmentRE = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// The method `environments` reads the environments besides the fleet's environment. The result is sorted by name.
func (r *reader) environments(n *yaml.Node, fleets string) []tutti.Environment {
	entries, _ := r.entries(n, "environments")
	var out []tutti.Environment
	for _, e := range entries {
		env := tutti.Environment{Name: r.environmentName(e.key.at, "environments")}
		what := "environment " + env.Name
		complete := r.mapping(e.value, what, fields{"path": func(n *yaml.Node) {
			env.Path, _ = r.text(n, what+": path")
		}})
		switch {
		case env.Name == fleets:
			r.report(e.key.at, "leave it out here", "environment %s is the fleet's `environment` already", env.Name)
		case complete && env.Path == "":
			r.report(e.key.at, "add `path:` with the directory of its code, or leave the environment out here if it is pushed in another way", "%s: no path", what)
		}
		out = append(out, env)
	}
	slices.SortFunc(out, func(a, b tutti.Environment) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reader) environment(n *yaml.Node, env *tutti.Environment) {
	r.mapping(n, "environment", fields{
		"name": func(n *yaml.Node) {
			env.Name = r.environmentName(n, "environment name")
		},
		"path": func(n *yaml.Node) {
			path, ok := r.text(n, "environment: path")
			if ok && path == "" {
				r.report(n, "without the key, the path is ./code", "environment: path is empty")
			}
			env.Path = path
		},
		"enc": func(n *yaml.Node) { env.ENC = r.isTrue(n, "environment: enc") },
	})
}
