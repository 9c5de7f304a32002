package data

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// These constants limit the exports of one node.
const (
	MaxExports    = 50_000
	MaxTitle      = 4096
	MaxParameters = 1000
	MaxExport     = 1 << 20 // bytes of the parameters of one export
)

// member is an export with its digest.
type member struct {
	tutti.Export
	digest [sha256.Size]byte // digest of everything except file and line
}

// exportSet contains the exports of one node by type. The exports of a type are sorted
// by title.
type exportSet map[string][]member

// CheckExports returns the exports of a node in the form for storing. Parameters are
// canonical, tags are sorted and unique, and exports are sorted by reference. Equal
// sets have equal encodings. CheckExports returns CodeInvalid for a malformed type,
// title or parameter, for too large exports, for exports of another node, and for a
// duplicate reference.
func CheckExports(node tutti.NodeName, exports []tutti.Export) ([]tutti.Export, error) {
	if len(exports) > MaxExports {
		return nil, tutti.Errorf(tutti.CodeInvalid, "node %q: %d exports, at most %d", string(node), len(exports), MaxExports)
	}
	checked := make([]tutti.Export, len(exports))
	for i, e := range exports {
		var err error
		if checked[i], err = checkExport(node, e); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(checked, compareExports)
	for i := 1; i < len(checked); i++ {
		if checked[i].Ref() == checked[i-1].Ref() {
			return nil, tutti.Errorf(tutti.CodeInvalid, "node %q: the export %s occurs twice", string(node), excerpt([]byte(checked[i].Ref())))
		}
	}
	return checked, nil
}

func compareExports(a, b tutti.Export) int {
	if a.Type != b.Type {
		return cmp.Compare(a.Type, b.Type)
	}
	if a.Title != b.Title {
		return cmp.Compare(a.Title, b.Title)
	}
	return cmp.Compare(a.Node, b.Node)
}

func checkExport(node tutti.NodeName, e tutti.Export) (tutti.Export, error) {
	what := excerpt([]byte(e.Ref()))
	if err := tutti.ValidateType(e.Type); err != nil {
		return e, tutti.Wrap("", err, "node %q: export %s", string(node), what)
	}
	size := 0
	for name, raw := range e.Parameters {
		if size += len(name) + len(raw); len(name) > tutti.MaxParameterName {
			return e, tutti.Errorf(tutti.CodeInvalid, "node %q: export %s: parameter %q…: a name has at most %d bytes", string(node), what, name[:20], tutti.MaxParameterName)
		}
		if slices.Contains(e.Sensitive, name) {
			return e, tutti.Errorf(tutti.CodeInvalid, "node %q: export %s: parameter %q is sensitive and has a value", string(node), what, name)
		}
	}
	switch {
	case e.Title == "" || len(e.Title) > MaxTitle:
		return e, tutti.Errorf(tutti.CodeInvalid, "node %q: export %s: a title has 1 to %d bytes", string(node), what, MaxTitle)
	case e.Node != "" && e.Node != node:
		return e, tutti.Errorf(tutti.CodeInvalid, "node %q: export %s says that it is from node %q", string(node), what, string(e.Node))
	case len(e.Parameters)+len(e.Tags)+len(e.Sensitive) > MaxParameters:
		return e, tutti.Errorf(tutti.CodeInvalid, "node %q: export %s: more than %d parameters and tags", string(node), what, MaxParameters)
	case size > MaxExport:
		return e, tutti.Errorf(tutti.CodeInvalid, "node %q: export %s: %d bytes of parameters, at most %d", string(node), what, size, MaxExport)
	}
	parameters := make(map[string]json.RawMessage, len(e.Parameters))
	for name, raw := range e.Parameters {
		canonical, err := Canonical(raw)
		if err != nil {
			return e, tutti.Wrap("", err, "node %q: export %s: parameter %q", string(node), what, name)
		}
		parameters[name] = canonical
	}
	e.Parameters = parameters
	return normalExport(node, e), nil
}

// normalExport returns an export from the log in normal form, without checking it.
func normalExport(node tutti.NodeName, e tutti.Export) tutti.Export {
	e.Node = node
	e.Tags = slices.Compact(slices.Sorted(slices.Values(e.Tags)))
	e.Sensitive = slices.Compact(slices.Sorted(slices.Values(e.Sensitive)))
	parameters := make(map[string]json.RawMessage, len(e.Parameters))
	for name, raw := range e.Parameters {
		parameters[name] = canonicalOrRaw(raw)
	}
	e.Parameters = parameters
	return e
}

// digestExport returns a digest of the parts that a collector gets. The digest leaves
// out file and line, because a moved line in a manifest must not cause runs of the
// readers.
func digestExport(e tutti.Export) [sha256.Size]byte {
	// Every part is quoted, and every list is one line, so different exports have different texts.
	var text []byte
	line := func(parts ...string) {
		for _, p := range parts {
			text = appendString(text, p)
		}
		text = append(text, '\n')
	}
	line(string(e.Node), e.Type, e.Title)
	line(e.Tags...)
	line(e.Sensitive...)
	for _, name := range slices.Sorted(maps.Keys(e.Parameters)) {
		line(name)
		text = append(append(text, e.Parameters[name]...), '\n')
	}
	return sha256.Sum256(text)
}

func (s *State) setExports(b *tutti.ExportsSet) {
	if len(b.Exports) != b.Count {
		panic(fmt.Sprintf("data: exports of node %q in run %s: %d in the event, %d at hand: blob %q was not read", b.Node, b.Run, b.Count, len(b.Exports), b.Set))
	}
	set := exportSet{}
	for _, e := range slices.SortedFunc(slices.Values(b.Exports), compareExports) {
		e = normalExport(b.Node, e)
		set[e.Type] = append(set[e.Type], member{e, digestExport(e)})
	}
	if b.Overlay {
		s.setOverlay(b.Job, b.Node, set)
		return
	}
	s.replace(b.Node, set)
	s.dropOverlay(b.Job, b.Node) // the set in the job's overlay is now outdated
}

// The method `replace` replaces the current exports of a node.
func (s *State) replace(node tutti.NodeName, set exportSet) {
	before := s.nodes[node]
	for name := range before {
		delete(s.types[name], node)
		if len(s.types[name]) == 0 {
			delete(s.types, name)
		}
	}
	for name, members := range set {
		if s.types[name] == nil {
			s.types[name] = map[tutti.NodeName][]member{}
		}
		s.types[name][node] = members
	}
	s.nodes[node] = set
	s.weights.replace(before, set)
	s.exportsChanged(node, "", before, set)
}

// Handed returns the exports that a node has handed over in a job but has not
// published yet, sorted by reference.
func (s *State) Handed(job tutti.JobID, node tutti.NodeName) []tutti.Export {
	return s.jobs[job].all()[node].exports()
}

// Exports returns the current exports of a node, sorted by reference.
func (s *State) Exports(node tutti.NodeName) []tutti.Export {
	return s.nodes[node].exports()
}

func (s exportSet) exports() []tutti.Export {
	var exports []tutti.Export
	for _, members := range s {
		for _, m := range members {
			exports = append(exports, m.Export)
		}
	}
	slices.SortFunc(exports, compareExports)
	return exports
}

// DecodeExports decodes a stored set of exports.
func DecodeExports(raw []byte) ([]tutti.Export, error) {
	var out []tutti.Export
	err := json.Unmarshal(raw, &out)
	return out, tutti.Wrap(tutti.CodeInternal, err, "stored exports")
}
