package fleet

import (
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// stepKind is what the fleet file has of a kind of step. Each kind is one type in one
// file; its method of kinds is its row in the table.
type stepKind interface {
	// example is a step of the kind, for hints.
	example() string
	// read begins to read a step that may be of the kind.
	read(r *reader) reading
	// check refuses what the kind does not allow, once the names and edges of all steps
	// of the plan are known. The step directly follows the steps before.
	check(r *reader, d draft, before []tutti.Step)
	// does and options say the same in the table of Render. The nodes are those of the
	// step's target, nil where nobody knows them.
	does(s tutti.Step, nodes []tutti.NodeName) string
	options(s tutti.Step) []string
}

// reading is a step while it is read.
type reading struct {
	// keys are the kind's keys beside those of every step. The key of the kind's name
	// makes a step one of that kind.
	keys fields
	// end makes the draft a step of the kind. It has the values of all keys that the
	// step has, by key.
	end func(d *draft, given map[string]*yaml.Node)
}

// kinds is the table of the kinds of steps.
type kinds struct{}

// eachKind calls f for every kind, in the order in which people are told of them.
func eachKind(f func(name tutti.StepKind, kind stepKind)) {
	for _, name := range tutti.StepKinds() {
		if kind, ok := tutti.ForStep(kinds{}, name); ok {
			f(name, kind)
		}
	}
}

// kindOf returns what belongs to the kind of a step.
func kindOf(s tutti.Step) stepKind {
	if kind, ok := tutti.ForStep(kinds{}, s.Kind()); ok {
		return kind
	}
	return unknown{}
}

// unknown is the kind of a step that this release does not know. No file has one.
// Render shows it by its name.
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

// examples is a step of each kind, for the hint of a step without one.
func examples() string {
	var out []string
	eachKind(func(_ tutti.StepKind, kind stepKind) { out = append(out, "`"+kind.example()+"`") })
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// readings begins to read a step of which nobody knows the kind yet. It returns all
// keys that it may have, and each kind's own part. A key that several kinds have is
// read by each of them.
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

// refuseOthers reports the keys that belong to steps of other kinds only.
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
			r.report(n, "remove it", "step: %s belongs to a %s step, this is a %s step", key, strings.Join(names, " or "), kind)
		}
	}
}

// noting makes the readers of keys note which keys a step has.
func noting(keys fields, given map[string]*yaml.Node) fields {
	out := maps.Clone(keys)
	for key, read := range keys {
		out[key] = func(n *yaml.Node) { given[key] = n; read(n) }
	}
	return out
}
