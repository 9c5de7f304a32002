package tutti

import (
	"regexp"
	"slices"
	"strings"
)

// Verb is what an operator may do (ADR 0024).
type Verb string

// The verbs. VerbView is part of every one, VerbRead of VerbRun, and VerbAdmin has all.
const (
	VerbView    Verb = "view"    // lists of jobs, nodes and pauses: no values, no logs, no text of errors
	VerbRead    Verb = "read"    // all that is kept
	VerbRun     Verb = "run"     // start and cancel jobs: narrowed by plans, groups and noop; pause: by groups
	VerbApprove Verb = "approve" // release code that is held
	VerbCode    Verb = "code"    // push signed code, with the fleet file that the server has
	VerbData    Verb = "data"    // set and unset values: narrowed by keys
	VerbPuppet  Verb = "puppet"  // ask, disable and enable the Puppets of nodes: narrowed by groups
	VerbNodes   Verb = "nodes"   // let nodes in and out
	VerbAdmin   Verb = "admin"   // everything; alone another fleet file, and other operators
)

// Verbs are all verbs.
var Verbs = []Verb{VerbView, VerbRead, VerbRun, VerbApprove, VerbCode, VerbData, VerbPuppet, VerbNodes, VerbAdmin}

// Includes reports whether an operator with the verb has another verb, too.
func (v Verb) Includes(other Verb) bool {
	return v == other || v == VerbAdmin || other == VerbView || v == VerbRun && other == VerbRead
}

// Everybody stands for all operators in Access.To.
const Everybody = "*"

// Access lets operators do something. Without any the fleet lets each operator do everything.
type Access struct {
	To  []string `json:"to"` // names in certificates, or Everybody
	May []Verb   `json:"may"`
	// Plans, Groups and Noop narrow VerbRun, Groups narrows VerbPuppet, and Keys (patterns, see ValidatePattern)
	// narrows VerbData. Empty: all. An entry with Plans or Noop does not allow to pause.
	Plans  []PlanName  `json:"plans,omitempty"`
	Groups []GroupName `json:"groups,omitempty"`
	Noop   bool        `json:"noop,omitempty"` // only what changes nothing on nodes
	Keys   []string    `json:"keys,omitempty"`
}

// Has reports whether an operator has a verb by this entry, for something.
func (a Access) Has(operator string, verb Verb) bool {
	return (slices.Contains(a.To, operator) || slices.Contains(a.To, Everybody)) &&
		slices.ContainsFunc(a.May, func(v Verb) bool { return v.Includes(verb) })
}

// String returns the entry as a fleet file has it, in one line.
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

// yamlWordRE is what YAML reads as text without quotes, but for yamlOthers.
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
