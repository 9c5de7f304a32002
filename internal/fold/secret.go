package fold

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
)

// Recipients returns the nodes of these targets with their keys. Recipients also returns the nodes that the fleet
// file lists and that have not joined. Recipients returns CodeInvalid if the fleet file has no recovery key.
func (s *State) Recipients(targets []string) (tutti.Recipients, error) {
	out := tutti.Recipients{Nodes: []tutti.Recipient{}}
	if err := tutti.ValidateTargets(targets); err != nil {
		return out, err
	}
	rules := s.Fleet().Secrets
	if rules == nil {
		return out, tutti.Errorf(tutti.CodeInvalid, "the fleet file has no `secrets: {recovery: …}`: make the key with `tutti secret init`, write the line that it prints into the file, and push it")
	}
	out.Recovery = rules.Recovery
	for _, target := range targets {
		group, node := tutti.Target(target)
		name := cmp.Or(string(group), string(node))
		isGroup := slices.ContainsFunc(s.Fleet().Groups, func(g tutti.Group) bool { return g.Name == group })
		absent := s.Unjoined(name)
		switch {
		case s.Registry.Conditions.Has(group):
			return out, tutti.Errorf(tutti.CodeInvalid, "group %s has `where`, so its nodes may read no secret: a node chooses its own facts; use a group with `trusted: CONDITION`, `joined: true` or `nodes`", group)
		case group != "" && !isGroup:
			out.Unknown = append(out.Unknown, group)
			absent = nil
		case node != "" && s.Registry.Nodes[node] == nil:
			absent = []tutti.NodeName{node}
		case node != "":
			absent = nil
		}
		out.Absent = append(out.Absent, absent...)
	}
	for _, n := range s.Registry.Nodes {
		if tutti.Targets(targets, n.Node, s.Registry.Groups(n)) {
			out.Nodes = append(out.Nodes, tutti.Recipient{Node: n.Node, BoxKey: n.BoxKey})
		}
	}
	slices.SortFunc(out.Nodes, func(a, b tutti.Recipient) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(out.Absent)
	out.Absent = slices.Compact(out.Absent)
	return out, nil
}

// IsRecipient reports whether a node belongs to one of these targets.
func (s *State) IsRecipient(targets []string, node tutti.NodeName) bool {
	n := s.Registry.Nodes[node]
	return n != nil && tutti.Targets(targets, node, s.Registry.Groups(n))
}

// SecretView returns which nodes have a secret, which lack it, and which had it.
func (s *State) SecretView(secret data.Sealed) api.SecretView {
	out := api.SecretView{
		Key: secret.View.Key, ID: secret.Secret.ID, For: secret.Secret.For, Owner: secret.View.Owner, By: secret.View.By, At: secret.View.At,
		Sealed: []tutti.NodeName{},
	}
	for _, n := range s.Registry.Nodes {
		_, sealed := secret.Boxes[n.Node]
		switch {
		case !s.IsRecipient(secret.Secret.For, n.Node):
		case sealed:
			out.Sealed = append(out.Sealed, n.Node)
		default:
			out.Waiting = append(out.Waiting, n.Node)
		}
	}
	for _, node := range secret.Had {
		switch {
		case node == secret.View.Owner:
		case !s.IsRecipient(secret.Secret.For, node):
			out.Former = append(out.Former, node)
		case slices.Contains(secret.Replaced, node):
			out.Replaced = append(out.Replaced, node)
		}
	}
	slices.Sort(out.Sealed)
	slices.Sort(out.Waiting)
	return out
}

// Awaits returns the key of a secret for which a node must wait. The node is among the secret's targets, but the
// secret has no piece for the node yet. So the node's question finds nothing. If the node need not wait, the key is
// empty.
func (s *State) Awaits(q tutti.Query, node tutti.NodeName) string {
	if lacked, lacks := s.Data.Lacks(q, node); lacks && s.IsRecipient(lacked.For, node) {
		return lacked.Path
	}
	return ""
}

// AwaitsHiera returns the hiera keys for which a node must wait for a secret, each with the key of the secret.
func (s *State) AwaitsHiera(node tutti.NodeName) map[string]string {
	var out map[string]string
	for key, lacked := range s.Data.LacksHiera(node) {
		if !s.IsRecipient(lacked.For, node) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = lacked.Path
	}
	return out
}
