package fleet

import (
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// stepKind is one kind of step in the fleet file. Each kind is one type in one file. The type
// `kinds` is a table: each of its methods is the row of one kind.
type stepKind interface {
	// The method `example` returns a step of this kind, for hints.
	example() string
	// The method `read` returns the readers for a step that may be of this kind.
	read(r *reader) reading
	// The method `check` reports problems that are specific to this kind. The reader calls `check` when the
	// names and edges of all steps of the plan are known. The parameter `before` lists the steps directly
	// before this step.
	check(r *reader, d draft, before []tutti.Step)
	// `does` and `options` return the texts for the table of Render. The parameter
	// `nodes` lists the nodes of the step's target, and is nil if they are unknown.
	does(s tutti.Step, nodes []tutti.NodeName) string
	options(s tutti.Step) []string
}

// The type `reading` is the state of a step while the reader reads the step.
type reading struct {
	// keys contains the keys of this kind, in addition to the keys that every step may have. The
	// name of the kind is one of the keys. A step that has this key is of this kind.
	keys fields
	// The function `end` turns the draft into a step of this kind. The map `given` contains the values of
	// all keys of the step, by key.
	end func(d *draft, given map[string]*yaml.Node)
}

// kinds is the table of the kinds of steps.
type kinds struct{}

// eachKind calls f for every kind, in the order in which people see the kinds.
func eachKind(f func(name tutti.StepKind, kind stepKind)) {
	for _, name := range tutti.StepKinds() {
		if kind, ok := tutti.ForStep(kinds{}, name); ok {
			f(name, kind)
		}
	}
}

// kindOf returns the kind of a step.
func kindOf(s tutti.Step) stepKind {
	if kind, ok := tutti.ForStep(kinds{}, s.Kind()); ok {
		return kind
	}
	return unknown{}
}

// The type `unknown` stands for every kind of step that this release does not know. Fleet files
// cannot have a step of an unknown kind. Render shows the name of the kind.
type unknown struct{}

func (unknown) example() string { return "" }

func (unknown) read(*reader) reading { return reading{} }

func (unknown) check(*reader, draft, []tutti.Step) {}

func (unknown) does(s tutti.Step, _ []tutti.NodeName) string {
	if s.Kind() == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s (not known to this release)", tutti.Plain(string(s.Kind()), maxProblem))
}

func (unknown) options(s tutti.Step) []string { return nil }

// The function `examples` returns a step of each kind. A hint about a step without a kind shows these steps.
func examples() string {
	var out []string
	eachKind(func(_ tutti.StepKind, kind stepKind) { out = append(out, "`"+kind.example()+"`") })
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// The method `readings` is for a step whose kind is not known yet. It returns the readers of all keys that the step
// may have, and the reading of each kind. If several kinds have the same key, each of these kinds reads the value.
func (r *reader) readings() (fields, map[tutti.StepKind]reading) {
	all := fields{}
	of := map[tutti.StepKind]reading{}
	eachKind(func(name tutti.StepKind, kind stepKind) {
		of[name] = kind.read(r)
		for key, read := range of[name].keys {
			before := all[key]
			all[key] = func(n *yaml.Node) {
				if before != nil {
					before(n)
				}
				read(n)
			}
		}
	})
	return all, of
}

// refuseOthers reports keys that only steps of other kinds may have.
func (r *reader) refuseOthers(kind tutti.StepKind, of map[tutti.StepKind]reading, given map[string]*yaml.Node) {
	for key, n := range given {
		if _, ok := of[kind].keys[key]; ok {
			continue
		}
		var names []string
		eachKind(func(name tutti.StepKind, _ stepKind) {
			if _, ok := of[name].keys[key]; ok {
				names = append(names, string(name))
			}
		})
		if len(names) > 0 {
			r.report(n, "remove it", "step: the key %s belongs to a %s step, but this is a %s step", key, strings.Join(names, " or "), kind)
		}
	}
}

// The function `noting` wraps the readers of keys, so that they record which keys a step has.
func noting(keys fields, given map[string]*yaml.Node) fields {
	out := maps.Clone(keys)
	for key, read := range keys {
		out[key] = func(n *yaml.Node) { given[key] = n; read(n) }
	}
	return out
}
