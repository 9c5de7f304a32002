package data

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Declare replaces the list of keys that the node's latest compiled catalog
// will publish. The keys are paths of values.
func (s *State) Declare(node tutti.NodeName, keys []string) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	before := s.declares[node]
	if slices.Equal(before, keys) {
		return
	}
	if s.declares[node] = keys; len(keys) == 0 {
		delete(s.declares, node)
	}
	for _, path := range before {
		if _, stays := slices.BinarySearch(keys, path); !stays {
			s.undeclare(node, path)
		}
	}
	for _, path := range keys {
		if _, had := slices.BinarySearch(before, path); !had {
			s.declare(node, path)
		}
	}
}

func (s *State) declare(node tutti.NodeName, path string) {
	nodes := s.declared[path]
	at, _ := slices.BinarySearch(nodes, node)
	s.declared[path] = slices.Insert(nodes, at, node)
	s.declarationChanged(path)
}

func (s *State) undeclare(node tutti.NodeName, path string) {
	nodes := s.declared[path]
	at, _ := slices.BinarySearch(nodes, node)
	if s.declared[path] = slices.Delete(nodes, at, at+1); len(s.declared[path]) == 0 {
		delete(s.declared, path)
	}
	s.declarationChanged(path)
}

// declarationChanged updates the indexes of declared hiera keys after the nodes that declare a path have changed.
func (s *State) declarationChanged(path string) {
	node, key, ok := hieraKey(path)
	if !ok {
		return
	}
	if node == "" {
		if q := s.questions[identity{kind: tutti.QueryHiera, key: key}]; q != nil {
			s.markPresent(q)
		}
		return
	}
	if len(s.declared[path]) > 0 {
		if s.declaredFor[node] == nil {
			s.declaredFor[node] = map[string]struct{}{}
		}
		s.declaredFor[node][key] = struct{}{}
		return
	}
	delete(s.declaredFor[node], key)
	if len(s.declaredFor[node]) == 0 {
		delete(s.declaredFor, node)
	}
}
