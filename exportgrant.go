package tutti

import (
	"fmt"
	"slices"
	"strings"
)

// ExportGrant lets nodes export resources of a type (ADR 0022).
type ExportGrant struct {
	Type string `json:"type"`
	// Defined: it is a defined type, though its name has one part only.
	Defined bool `json:"defined,omitempty"`
	// Parameters are those that the resource may have, besides relations and tag. Empty: those
	// that are safe; of a defined type, and in a dangerous grant, all.
	Parameters []string `json:"parameters,omitempty"`
	// OwnTitle: the title is the node's name, or begins with it and one of `_:/@` or a space.
	OwnTitle bool `json:"own_title,omitempty"`
	// Tags are those that it may have, besides those of its type and title. Empty: all.
	Tags        []string `json:"tags,omitempty"`
	NoRelations bool     `json:"no_relations,omitempty"`
	// Most is how many resources of the type a node may export, 0: MostExports.
	Most int `json:"most,omitempty"`
	// MostMiB is how large the resources of the type may be together that a node exports, in MiB of text; 0:
	// MostExportedMiB.
	MostMiB int `json:"most_mib,omitempty"`
}

// MostExports is how many resources of a type a node exports if its grant does not say more.
const MostExports = 100

// MostExportedMiB is how large they are together. One answer has to have room for those of all nodes.
const MostExportedMiB = 8

// Relations are metaparameters that name other resources of the collector.
var Relations = []string{"before", "notify", "require", "subscribe"}

// steering are the metaparameters of an export that change how its collector runs.
var steering = []string{"alias", "audit", "loglevel", "noop", "schedule", "stage"}

// safeExports are native types that do not mean root on the collector, with the parameters of
// which that is so: no value of them names another file, runs anything, or is taken for
// another resource (`name`). Add one only after you have read the type and its providers.
var safeExports = map[string][]string{
	// Of sshkeys_core and host_core: parsed files, without target.
	"Host":   {"comment", "ensure", "host_aliases", "ip"},
	"Notify": {"message", "withpath"},
	"Sshkey": {"ensure", "host_aliases", "key", "type"},
	// Of the module swift: arguments of swift-ring-builder, without a shell.
	"Ring_account_device":   {"ensure", "meta", "region", "weight", "zone"},
	"Ring_container_device": {"ensure", "meta", "region", "weight", "zone"},
	"Ring_object_device":    {"ensure", "meta", "region", "weight", "zone"},
}

// nativeTypes are those of Puppet and of the modules that are shipped with it: none of them is
// a defined type.
var nativeTypes = []string{
	"Augeas", "Computer", "Cron", "Exec", "File", "Filebucket", "Group", "Host", "Interface", "K5login", "Macauthorization", "Mailalias", "Maillist",
	"Mcx", "Mount", "Notify", "Package", "Resources", "Router", "Schedule", "Scheduled_task", "Selboolean", "Selmodule", "Service", "Ssh_authorized_key",
	"Sshkey", "Stage", "Tidy", "User", "Vlan", "Whit", "Yumrepo", "Zfs", "Zone", "Zpool",
}

// Native reports whether it is known that Puppet code does not define the type.
func (g ExportGrant) Native() bool {
	return slices.Contains(nativeTypes, g.Type) || safeExports[g.Type] != nil
}

// Dangers says why a node that exports by this grant is root on the collector. It returns the
// empty string if it is not.
func (g ExportGrant) Dangers() string {
	if g.Defined || strings.Contains(g.Type, "::") {
		return ""
	}
	safe, listed := safeExports[g.Type]
	if !listed {
		return fmt.Sprintf("who exports %s is root on every node that collects it", g.Type)
	}
	for _, p := range g.Parameters {
		if !slices.Contains(safe, p) {
			return fmt.Sprintf("who sets %s of %s is root on every node that collects it", p, g.Type)
		}
	}
	return ""
}

// MaxParameterName bounds the name of a parameter of an exported resource, in bytes.
const MaxParameterName = 255

// IsParameter reports whether Puppet takes a name for one of a parameter.
func IsParameter(name string) bool {
	return len(name) <= MaxParameterName && parameterRE.MatchString(name)
}

// Admits reports whether a resource may have a parameter. Dangerous is the word of the grant.
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

// has reports whether a metaparameter's name is a parameter of the type's own.
func (g ExportGrant) has(parameter string) bool {
	return parameter == "alias" && strings.HasPrefix(g.Type, "Nagios_")
}

// OldDangerousExport reports whether a type took the word before 0.3.0: Grant.Exports mean that.
func OldDangerousExport(name string) bool {
	return slices.Contains([]string{"Cron", "Exec", "File", "Package", "Ssh_authorized_key", "User"}, name)
}

// String returns the grant as a fleet file has it, in one line.
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

// String returns what is granted as a fleet file has it: a name if that is all.
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
