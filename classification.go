package tutti

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
)

// Classification is what the site's own script on the server (its ENC) says about a node.
type Classification struct {
	// Classes are the classes of the node, by name. The value has the parameters of the class, or is null.
	Classes map[string]json.RawMessage `json:"classes,omitempty"`
	// Parameters are variables at top scope.
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
	// Environment counts only if the fleet file says so. It is not part of what the compile reads.
	Environment string `json:"environment,omitempty"`
}

// MaxClassification is the largest size of a Classification, in bytes of JSON.
const MaxClassification = 64 << 10

var (
	classRE    = regexp.MustCompile(`^[a-z][a-z0-9_]*(::[a-z][a-z0-9_]*)*$`)
	variableRE = regexp.MustCompile(`^[a-z_][a-zA-Z0-9_]*$`)
)

// reservedVariables are variables that Puppet sets itself.
var reservedVariables = []string{"trusted", "facts", "server_facts", "environment", "title", "name", "clientcert", "clientversion",
	"module_name", "caller_module_name", "servername", "serverip", "serverversion"}

// Validate refuses what Puppet could not declare, and what would replace a variable that Puppet sets itself.
func (c Classification) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(c.Classes)) {
		if !classRE.MatchString(name) {
			return Errorf(CodeInvalid, "classes: %q is not the name of a class", name)
		}
		var parameters map[string]json.RawMessage
		if err := json.Unmarshal(c.Classes[name], &parameters); err != nil {
			return Errorf(CodeInvalid, "classes: the parameters of %s are not a hash", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Parameters)) {
		if !variableRE.MatchString(name) || slices.Contains(reservedVariables, name) {
			return Errorf(CodeInvalid, "parameters: %q is not the name of a variable that the site may set", name)
		}
	}
	if c.Environment != "" {
		if err := validateEnvironment(c.Environment); err != nil {
			return err
		}
	}
	if raw, err := json.Marshal(c); err != nil || len(raw) > MaxClassification {
		return Errorf(CodeInvalid, "the answer has %d bytes of JSON, at most %d", len(raw), MaxClassification)
	}
	return nil
}

// NodeClassified says that the ENC gives another answer about a node than before. The field Classification is nil if the
// server has no ENC any more.
type NodeClassified struct {
	Node           NodeName        `json:"node"`
	Classification *Classification `json:"classification,omitempty"`
}

// Kind implements Body.
func (*NodeClassified) Kind() string { return "node.classified" }

// ID implements Body.
func (b *NodeClassified) ID() string { return string(b.Node) }

func validateEnvironment(name string) error {
	if !environmentRE.MatchString(name) {
		return Errorf(CodeInvalid, "environment: %q is not the name of an environment: use a-z, 0-9 and _", name)
	}
	return nil
}
