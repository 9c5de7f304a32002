package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/policy"
)

// SuggestGrants implements tutti.Codes.
func (rd *Reader) SuggestGrants(ctx context.Context, id tutti.JobID) (api.SuggestedGrants, error) {
	var out api.SuggestedGrants
	return out, rd.look(ctx, func(v View) error {
		j, err := v.suggestFrom(id)
		if err != nil {
			return err
		}
		fleet := v.Fleet()
		wants := map[tutti.NodeName][]tutti.Grant{}
		if j != nil {
			out.Job, out.At = j.ID, j.EndedAt
			out.Failed = refusedIn(j, wants)
		}
		out.Old = policy.Old(fleet)
		now := policy.Renewed(fleet)
		for name, n := range v.Registry.Nodes {
			groups := v.Registry.Groups(n)
			wants[name] = lacking(now, groups, name, wants[name])
			if out.Old {
				wants[name] = policy.Merge(wants[name], policy.Wants(now, groups, name, policy.Inspect(v.Data.Exports(name)), nil, nil))
			}
		}
		out.Grants = suggest(wants, func(n tutti.NodeName) []tutti.GroupName {
			if node := v.Registry.Nodes[n]; node != nil {
				return v.Registry.Groups(node)
			}
			return nil
		}, slices.Sorted(maps.Keys(v.Registry.Nodes)))
		return nil
	})
}

// suggestFrom returns the job with this id. If the id is empty, suggestFrom returns the last noop
// converge job, or nil if there is no such job.
func (v View) suggestFrom(id tutti.JobID) (*engine.Job, error) {
	if id != "" {
		return v.Job(id, v.KeepJobs)
	}
	for _, id := range slices.Backward(v.Engine.Order) {
		if j := v.Engine.Jobs[id]; j.Ended() && j.Mode == tutti.ModeNoop && j.Plan.Name == api.ConvergePlan {
			return j, nil
		}
	}
	return nil, nil
}

// refusedIn adds the grants that the last run of each node in a job lacked. The function returns the nodes
// whose run ended before its grants were checked.
func refusedIn(j *engine.Job, wants map[tutti.NodeName][]tutti.Grant) (failed []tutti.NodeName) {
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			r := n.Last()
			switch {
			case r == nil:
			case r.Wants != nil:
				wants[n.Node] = policy.Merge(wants[n.Node], r.Wants)
			case r.Compiled == nil && r.Ended() && !slices.Contains(failed, n.Node):
				failed = append(failed, n.Node)
			}
		}
	}
	slices.Sort(failed)
	return failed
}

// The function `lacking` returns the wanted grants that a node does not have.
func lacking(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, wants []tutti.Grant) []tutti.Grant {
	has, keys := policy.ExportsOf(fleet, groups, node), policy.KeysOf(fleet, groups, node)
	var out []tutti.Grant
	for _, g := range wants {
		left := tutti.Grant{Dangerous: g.Dangerous}
		for _, t := range g.Types {
			e := tutti.Export{Type: t.Type, Title: string(node), Parameters: map[string]json.RawMessage{}}
			for _, p := range t.Parameters {
				e.Parameters[p] = json.RawMessage("null")
			}
			if has.May(e) != nil || t.Most > has.Most(t.Type) || t.MostMiB > has.MostMiB(t.Type) {
				left.Types = append(left.Types, t)
			}
		}
		for _, key := range g.Write {
			if !keys.Writes(key) {
				left.Write = append(left.Write, key)
			}
		}
		for _, key := range g.Read {
			if !keys.Reads(key) {
				left.Read = append(left.Read, key)
			}
		}
		out = append(out, left)
	}
	return policy.Merge(out, nil)
}

// The type `item` is one permission that nodes lack.
type item struct {
	kind      string // exports, write or read
	name      string
	dangerous bool
}

// The type `holder` is a group that gets a grant, and whether the grant is dangerous.
type holder struct {
	group     tutti.GroupName
	dangerous bool
}

// The function `suggest` turns the grants that nodes lack into grants to groups. The function prefers groups that
// have no other nodes.
func suggest(wants map[tutti.NodeName][]tutti.Grant, groups func(tutti.NodeName) []tutti.GroupName, all []tutti.NodeName) []api.SuggestedGrant {
	members := map[tutti.GroupName][]tutti.NodeName{}
	for _, n := range all {
		for _, g := range groups(n) {
			members[g] = append(members[g], n)
		}
	}
	who := map[item]map[tutti.NodeName]tutti.Grant{}
	note := func(i item, n tutti.NodeName, g tutti.Grant) {
		if who[i] == nil {
			who[i] = map[tutti.NodeName]tutti.Grant{}
		}
		who[i][n] = g
	}
	for n, grants := range wants {
		for _, g := range grants {
			for _, t := range g.Types {
				note(item{"exports", t.Type, g.Dangerous}, n, tutti.Grant{Types: []tutti.ExportGrant{t}, Dangerous: g.Dangerous})
			}
			for _, key := range g.Write {
				note(item{"write", key, g.Dangerous}, n, tutti.Grant{Write: []string{key}, Dangerous: g.Dangerous})
			}
			for _, key := range g.Read {
				note(item{"read", key, g.Dangerous}, n, tutti.Grant{Read: []string{key}, Dangerous: g.Dangerous})
			}
		}
	}
	out := map[holder]*api.SuggestedGrant{}
	for _, nodes := range who {
		for group, of := range cover(nodes, groups, members) {
			for _, n := range of {
				h := holder{group, nodes[n].Dangerous}
				if out[h] == nil {
					out[h] = &api.SuggestedGrant{}
				}
				merged := policy.Merge([]tutti.Grant{out[h].Grant}, []tutti.Grant{nodes[n]})
				out[h].Grant = merged[len(merged)-1]
				out[h].Nodes = append(out[h].Nodes, n)
			}
		}
	}
	var list []api.SuggestedGrant
	for h, g := range out {
		g.To, g.Dangerous = h.group, h.dangerous
		slices.Sort(g.Nodes)
		g.Nodes = slices.Compact(g.Nodes)
		g.Also = slices.DeleteFunc(slices.Clone(members[h.group]), func(n tutti.NodeName) bool { return slices.Contains(g.Nodes, n) })
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b api.SuggestedGrant) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(len(a.Write)+len(a.Read), len(b.Write)+len(b.Read)), cmp.Compare(a.String(), b.String()))
	})
	return list
}

// The function `cover` chooses groups that contain these nodes. The function prefers groups with few other nodes. For
// each chosen group, the result has the nodes for which the group is chosen. Nodes without a group are listed under
// the empty group.
func cover[V any](nodes map[tutti.NodeName]V, groups func(tutti.NodeName) []tutti.GroupName, members map[tutti.GroupName][]tutti.NodeName) map[tutti.GroupName][]tutti.NodeName {
	out := map[tutti.GroupName][]tutti.NodeName{}
	left := map[tutti.NodeName]bool{}
	could := map[tutti.GroupName]bool{}
	for n := range nodes {
		of := groups(n)
		if len(of) == 0 {
			out[""] = append(out[""], n)
			continue
		}
		left[n] = true
		for _, g := range of {
			could[g] = true
		}
	}
	for len(left) > 0 {
		type choice struct {
			group         tutti.GroupName
			covers, extra int
		}
		var choices []choice
		for g := range could {
			c := choice{group: g}
			for _, n := range members[g] {
				if left[n] {
					c.covers++
				}
				if _, wants := nodes[n]; !wants {
					c.extra++
				}
			}
			if c.covers > 0 {
				choices = append(choices, c)
			}
		}
		best := slices.MinFunc(choices, func(a, b choice) int {
			return cmp.Or(cmp.Compare(a.extra, b.extra), cmp.Compare(b.covers, a.covers), cmp.Compare(a.group, b.group))
		})
		for _, n := range members[best.group] {
			if left[n] {
				delete(left, n)
				out[best.group] = append(out[best.group], n)
			}
		}
	}
	return out
}
