// Package policy decides what a node may publish and read. Without a grant a node may read shared/** and node/<its
// name>/**, may write node/<its name>/**, and may export nothing. The grants of the fleet file only add rights. A
// refusal is a tutti.Error with CodeRefused. The error of a refusal names the node, the refused action, and a grant
// that would allow it. The functions are pure. The functions do not check whether a key already has another owner.
// Package data does.
//
// The parameter `groups` has the groups of the node, as fleet.GroupsOf returns them.
package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// MayWrite returns nil if the node may set and unset the key.
func MayWrite(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, key string) error {
	return KeysOf(fleet, groups, node).MayWrite(key)
}

// MayRead returns nil if the node may read the key.
func MayRead(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, key string) error {
	return KeysOf(fleet, groups, node).MayRead(key)
}

// MayCompile returns nil if the node may compile for other nodes as their Puppet Server.
func MayCompile(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName) error {
	for _, g := range granted(fleet, groups) {
		if g.Compile && g.Dangerous {
			return nil
		}
	}
	return refuse(fleet, groups, node, "compile for other nodes", "no grant", tutti.Grant{Compile: true, Dangerous: true})
}

// Compiles reports whether the fleet has nodes that compile for others.
func Compiles(fleet tutti.Fleet) bool {
	return slices.ContainsFunc(fleet.Grants, func(g tutti.Grant) bool { return g.Compile && g.Dangerous })
}

// The function `own` returns the pattern of the keys that belong to a node. The node's name is a whole segment of the
// path.
func own(node tutti.NodeName) string { return "node/" + string(node) + "/**" }

func granted(fleet tutti.Fleet, groups []tutti.GroupName) []tutti.Grant {
	var grants []tutti.Grant
	for _, g := range fleet.Grants {
		if slices.Contains(groups, g.To) {
			grants = append(grants, g)
		}
	}
	return grants
}

// The function `refuse` returns an error with a line that can be added under `grants:`. The line names the node's
// smallest group.
func refuse(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, what, why string, wants tutti.Grant) error {
	wants.To = "GROUP"
	in, others := "in no group", ""
	if len(groups) > 0 {
		names := make([]string, len(groups))
		for i, g := range groups {
			names[i] = string(g)
		}
		slices.Sort(names)
		wants.To, in = smallest(fleet, groups), "in "+strings.Join(names, ", ")
	}
	if len(groups) > 1 {
		others = fmt.Sprintf(" (%s is its smallest group; \"tutti grants suggest\" chooses groups for all nodes that lack a grant)", wants.To)
	}
	return tutti.Errorf(tutti.CodeRefused, "node %q (%s) may not %s: %s; to allow this, add to the grants of the fleet file: - %s%s%s",
		string(node), in, what, why, wants, orDefined(wants), others)
}

// smallest returns the group that lists the fewest nodes. A group of join tokens may have any number of nodes, so it comes last.
func smallest(fleet tutti.Fleet, groups []tutti.GroupName) tutti.GroupName {
	size := map[tutti.GroupName]int{}
	for _, g := range fleet.Groups {
		size[g.Name] = len(g.Nodes)
	}
	return slices.MinFunc(groups, func(a, b tutti.GroupName) int {
		return cmp.Or(cmp.Compare(cmp.Or(size[a], math.MaxInt), cmp.Or(size[b], math.MaxInt)), cmp.Compare(a, b))
	})
}

// orDefined returns a second suggested line, for the case that the type is a defined type. The name of a type does
// not show whether this is the case.
func orDefined(wants tutti.Grant) string {
	if len(wants.Types) != 1 || wants.Types[0].Native() || !wants.Dangerous || strings.Contains(wants.Types[0].Type, "::") {
		return ""
	}
	return fmt.Sprintf(" (if your Puppet code defines the type: exports: [{type: %s, defined: true}], without dangerous)", wants.Types[0].Type)
}
