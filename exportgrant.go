package tutti

import (
	"fmt"
	"slices"
	"strings"
)

// ExportGrant allows nodes to export resources of one type (ADR 0022).
type ExportGrant struct {
	Type string `json:"type"`
	// Defined is true for a defined type whose name has only one part.
	Defined bool `json:"defined,omitempty"`
	// Parameters lists the parameters that the resource may have, besides relations and tag. In the
	// grant of a defined type, and in a dangerous grant, an empty list allows all parameters. In
	// other grants, an empty list allows safe parameters only.
	Parameters []string `json:"parameters,omitempty"`
	// OwnTitle requires that the title is the node's name, or begins with the node's name and one of `_:/@`
	// or a space.
	OwnTitle bool `json:"own_title,omitempty"`
	// Tags lists the tags that the resource may have, besides the tags of its type and title. Empty: all.
	Tags        []string `json:"tags,omitempty"`
	NoRelations bool     `json:"no_relations,omitempty"`
	// Most is the largest number of resources of the type that a node may export. With 0 the limit is
	// MostExports.
	Most int `json:"most,omitempty"`
	// MostMiB is the largest total size, in MiB of text, of the resources of the type that a node exports.
	// With 0 the limit is MostExportedMiB.
	MostMiB int `json:"most_mib,omitempty"`
}

// MostExports is the largest number of resources of a type that a node may export if its grant has no
// other limit.
const MostExports = 100

// MostExportedMiB is the largest total size of exported resources of a type if the grant has no
// other limit. One answer must have room for the resources of all nodes.
const MostExportedMiB = 8

// Relations are the metaparameters that name other resources on the collecting node.
var Relations = []string{"before", "notify", "require", "subscribe"}

// The variable `steering` are the metaparameters of an export that change how the collecting node
// runs.
var steering = []string{"alias", "audit", "loglevel", "noop", "schedule", "stage"}

// safeExports lists, for some native types, the parameters that do not give root on the collecting node. With these
// parameters, an export cannot change another file, run a command, or apply to another resource (parameter `name`).
// Add a type only after you have read the type and its providers.
var safeExports = map[string][]string{
	// These types are from sshkeys_core and host_core. The list leaves out `target`, which names the file to change.
	"Host":   {"comment", "ensure", "host_aliases", "ip"},
	"Notify": {"message", "withpath"},
	"Sshkey": {"ensure", "host_aliases", "key", "type"},
	// These types are from the module swift. They run swift-ring-builder without a shell.
	"Ring_account_device":   {"ensure", "meta", "region", "weight", "zone"},
	"Ring_container_device": {"ensure", "meta", "region", "weight", "zone"},
	"Ring_object_device":    {"ensure", "meta", "region", "weight", "zone"},
}

// nativeTypes are the types of Puppet and of the modules that Puppet's packages contain. Puppet
// code defines none of these types.
var nativeTypes = []string{
	"Augeas", "Computer", "Cron", "Exec", "File", "Filebucket", "Group", "Host", "Interface", "K5login", "Macauthorization", "Mailalias", "Maillist",
	"Mcx", "Mount", "Notify", "Package", "Resources", "Router", "Schedule", "Scheduled_task", "Selboolean", "Selmodule", "Service", "Ssh_authorized_key",
	"Sshkey", "Stage", "Tidy", "User", "Vlan", "Whit", "Yumrepo", "Zfs", "Zone", "Zpool",
}

// Native reports whether the type is certainly not defined in Puppet code.
func (g ExportGrant) Native() bool {
	return slices.Contains(nativeTypes, g.Type) || safeExports[g.Type] != nil
}

// Dangers says why a node that exports by this grant can become root on the collecting node.
// Dangers returns an empty string if there is no such danger.
func (g ExportGrant) Dangers() string {
	if g.Defined || strings.Contains(g.Type, "::") {
		return ""
	}
	safe, listed := safeExports[g.Type]
	if !listed {
		return fmt.Sprintf("anyone who can export %s becomes root on every node that collects it", g.Type)
	}
	for _, p := range g.Parameters {
		if !slices.Contains(safe, p) {
			return fmt.Sprintf("anyone who can set %s of %s becomes root on every node that collects this export", p, g.Type)
		}
	}
	return ""
}

// MaxParameterName bounds the name of a parameter of an exported resource, in bytes.
const MaxParameterName = 255

// IsParameter reports whether Puppet accepts a name as the name of a parameter.
func IsParameter(name string) bool {
	return len(name) <= MaxParameterName && parameterRE.MatchString(name)
}

// Admits reports whether a resource may have this parameter. The argument `dangerous` is true if the grant has this
// word.
func (g ExportGrant) Admits(parameter string, dangerous bool) bool {
	named := slices.Contains(g.Parameters, parameter)
	switch safe, listed := safeExports[g.Type]; {
	case !IsParameter(parameter):
		return false
	case slices.Contains(Relations, parameter):
		return !g.NoRelations
	case parameter == "tag":
		return true // see Tags
	case slices.Contains(steering, parameter) && !g.has(parameter):
		return dangerous && named
	case len(g.Parameters) > 0:
		return named
	case dangerous || !listed:
		return true
	default:
		return slices.Contains(safe, parameter)
	}
}

// The method `has` reports whether the type itself defines a parameter that has the name of a
// metaparameter.
func (g ExportGrant) has(parameter string) bool {
	return parameter == "alias" && strings.HasPrefix(g.Type, "Nagios_")
}

// OldDangerousExport reports whether a type needed the word `dangerous` before 0.3.0. The types in
// the field Grant.Exports keep this earlier meaning.
func OldDangerousExport(name string) bool {
	return slices.Contains([]string{"Cron", "Exec", "File", "Package", "Ssh_authorized_key", "User"}, name)
}

// String returns the grant in one line, as a fleet file writes it.
func (g Grant) String() string {
	parts := []string{"to: " + string(g.To)}
	if len(g.Types) > 0 {
		types := make([]string, len(g.Types))
		for i, t := range g.Types {
			types[i] = t.String()
		}
		parts = append(parts, "exports: ["+strings.Join(types, ", ")+"]")
	}
	for _, keys := range []struct {
		name     string
		patterns []string
	}{{"write", g.Write}, {"read", g.Read}} {
		if len(keys.patterns) > 0 {
			parts = append(parts, fmt.Sprintf("%s: [%s]", keys.name, quoted(keys.patterns)))
		}
	}
	if g.Compile {
		parts = append(parts, "compile: true")
	}
	if g.Dangerous {
		parts = append(parts, "dangerous: true")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// String returns the granted type as a fleet file writes it. If there are no limits, String returns the
// name alone.
func (g ExportGrant) String() string {
	parts := []string{"type: " + g.Type}
	if g.Defined {
		parts = append(parts, "defined: true")
	}
	if len(g.Parameters) > 0 {
		parts = append(parts, "parameters: ["+strings.Join(g.Parameters, ", ")+"]")
	}
	if g.OwnTitle {
		parts = append(parts, "title: own")
	}
	if len(g.Tags) > 0 {
		parts = append(parts, "tags: ["+quoted(g.Tags)+"]")
	}
	if g.NoRelations {
		parts = append(parts, "relations: false")
	}
	if g.Most > 0 {
		parts = append(parts, fmt.Sprintf("most: %d", g.Most))
	}
	if g.MostMiB > 0 {
		parts = append(parts, fmt.Sprintf("most_mib: %d", g.MostMiB))
	}
	if len(parts) == 1 {
		return g.Type
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(out, ", ")
}
