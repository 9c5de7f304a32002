package engine

import (
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// Expects reports whether an unfinished job may still run a node.
func (s *State) Expects(node tutti.NodeName, member func(target string, node tutti.NodeName) bool) bool {
	for _, j := range s.open {
		for _, st := range j.Steps {
			switch {
			case st.Ended():
			case st.ActsOn() == tutti.NodesFound && member(st.Target(), node), st.byNode[node] != nil:
				return true
			}
		}
	}
	return false
}

// Later returns the nodes of a job that have no active run, sorted by
// name.
func (s *State) Later(job tutti.JobID) []tutti.NodeName {
	j := s.Jobs[job]
	if j == nil {
		return nil
	}
	nodes := map[tutti.NodeName]bool{}
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			if s.Active[n.Node] == "" {
				nodes[n.Node] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
