package tutti

import (
	"regexp"
	"slices"
	"strings"
)

// Verb is what an operator may do (ADR 0024).
type Verb string

// The verbs. VerbView is part of every other verb but VerbMetrics, VerbRead is part of VerbRun, and VerbAdmin
// includes all verbs.
const (
	VerbView Verb = "view" // VerbView shows lists of jobs, nodes and pauses, but no values, logs or error texts
	VerbRead Verb = "read" // VerbRead shows everything that the server stores
	// VerbRun lets an operator start and cancel jobs (narrowed by plans, groups and noop), and pause
	// (narrowed by groups).
	VerbRun     Verb = "run"
	VerbApprove Verb = "approve" // release code that is held
	VerbCode    Verb = "code"    // push signed code together with the server's present fleet file
	VerbData    Verb = "data"    // set and unset values (narrowed by keys)
	VerbPuppet  Verb = "puppet"  // ask nodes, and disable and enable their Puppet (narrowed by groups)
	VerbNodes   Verb = "nodes"   // add and remove nodes
	VerbMetrics Verb = "metrics" // scrape /metrics, and nothing else
	VerbAdmin   Verb = "admin"   // everything. Only this verb changes the fleet file and the operators
)

// Verbs are all verbs.
var Verbs = []Verb{VerbView, VerbRead, VerbRun, VerbApprove, VerbCode, VerbData, VerbPuppet, VerbNodes, VerbMetrics, VerbAdmin}

// Includes reports whether an operator with the verb v also has the verb in `other`.
func (v Verb) Includes(other Verb) bool {
	return v == other || v == VerbAdmin || other == VerbView && v != VerbMetrics || v == VerbRun && other == VerbRead
}

// Everybody in Access.To stands for all operators.
const Everybody = "*"

// Access gives operators some verbs. If the fleet file has no entry for access, each operator may do
// everything.
type Access struct {
	To  []string `json:"to"` // names in certificates, or Everybody
	May []Verb   `json:"may"`
	// Plans, Groups and Noop narrow VerbRun. Groups also narrows VerbPuppet. Keys (patterns, see
	// ValidatePattern) narrows VerbData. An empty list narrows nothing. An entry with Plans or Noop does not allow an
	// operator to pause.
	Plans  []PlanName  `json:"plans,omitempty"`
	Groups []GroupName `json:"groups,omitempty"`
	Noop   bool        `json:"noop,omitempty"` // only runs with noop, which change nothing on nodes
	Keys   []string    `json:"keys,omitempty"`
}

// Has is true if this entry gives an operator a verb for at least one plan, group or key.
func (a Access) Has(operator string, verb Verb) bool {
	return (slices.Contains(a.To, operator) || slices.Contains(a.To, Everybody)) &&
		slices.ContainsFunc(a.May, func(v Verb) bool { return v.Includes(verb) })
}

// String returns the entry in one line, as a fleet file writes it.
func (a Access) String() string {
	parts := []string{"to: " + InList(a.To), "may: " + InList(a.May)}
	if len(a.Plans) > 0 {
		parts = append(parts, "plans: "+InList(a.Plans))
	}
	if len(a.Groups) > 0 {
		parts = append(parts, "groups: "+InList(a.Groups))
	}
	if a.Noop {
		parts = append(parts, "noop: true")
	}
	if len(a.Keys) > 0 {
		parts = append(parts, "keys: ["+quoted(a.Keys)+"]")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// yamlWordRE matches the words that YAML reads as text without quotes. yamlOthers lists words that
// match, but need quotes.
var (
	yamlWordRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*([.@][A-Za-z][A-Za-z0-9_-]*)*$`)
	yamlOthers = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
)

var operatorRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,62}$`)

// ValidateOperator accepts the name of an operator.
func ValidateOperator(name string) error {
	if !operatorRE.MatchString(name) {
		return Errorf(CodeInvalid, "operator name %q: lower-case letters, digits, '.', '_', '@' and '-' only, at most 63", name)
	}
	return nil
}
