package fleet

import (
	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// sleepKind implements sleep steps. A sleep step waits for a fixed time.
type sleepKind struct{}

// Sleep implements tutti.StepTable.
func (kinds) Sleep() stepKind { return sleepKind{} }

func (sleepKind) example() string { return "sleep: 30s" }

func (sleepKind) read(r *reader) reading {
	var spec tutti.SleepStep
	return reading{fields{
		"sleep": func(n *yaml.Node) {
			var ok bool
			if spec.For, ok = r.anyDuration(n, "step: sleep"); !ok {
				return
			}
			if err := spec.Validate(); err != nil {
				r.report(follow(n), "like 30s or 10m", "step: %v", err)
			}
		},
	}, func(d *draft, _ map[string]*yaml.Node) {
		d.Sleep, d.target, d.Timeout = &spec, Duration(spec.For), spec.For
	}}
}

func (sleepKind) check(r *reader, d draft, _ []tutti.Step) {
	r.refusePerNode(d, "leave `per` out", "a sleep step has no nodes")
}

func (sleepKind) does(s tutti.Step, _ []tutti.NodeName) string {
	return "sleep " + Duration(s.Sleep.For)
}

func (sleepKind) options(tutti.Step) []string { return nil }
