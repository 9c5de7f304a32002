package fold

import (
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/policy"
)

// State is the fold of all events of the log. State changes only by Apply, and by the decisions of engine and
// converge. Several readers may read a State at the same time, while no goroutine calls Apply or takes decisions.
type State struct {
	Seq      uint64 // number of the last event
	Through  uint64 // the last event that the latest snapshot covers
	Kept     int    // how many events the latest snapshot contains
	Engine   *engine.State
	Data     *data.State
	Converge *converge.State
	Registry *Registry
	// Reports says which reports were deleted. Reports is nil if this is not known.
	Reports *tutti.ReportsRetired
}

// New returns the state before the first event.
func New() *State {
	s := &State{Engine: engine.NewState(), Data: data.NewState(), Registry: newRegistry()}
	s.Converge = converge.New(s.Engine, s.Data)
	return s
}

// Apply folds the next event of the log. Several states may apply the same event and then share its
// content. So no code may change the content.
func (s *State) Apply(e tutti.Event) {
	s.Seq = e.Seq
	if b, ok := e.Body.(*tutti.NodeEnrolled); ok && s.Registry.replaces(b) { // the event is from release 0.2.0 or earlier
		s.apply(tutti.Event{Seq: e.Seq, At: e.At, By: e.By, Body: &tutti.NodeRemoved{Node: b.Node, Replaced: true}})
	}
	s.apply(e)
}

func (s *State) apply(e tutti.Event) {
	gone := s.Engine.Apply(e)
	s.Data.Apply(e)
	s.Converge.Apply(e)
	s.Registry.apply(e)
	s.Registry.unclaim(gone...)
	switch b := e.Body.(type) {
	case *tutti.FleetSet:
		for name, n := range s.Registry.Nodes {
			data.SetGroups(s.Data, name, s.Registry.Groups(n))
		}
	case *tutti.NodeEnrolled:
		data.SetGroups(s.Data, b.Node, s.Registry.GroupsOf(b.Node))
	case *tutti.SnapshotTaken:
		s.Through, s.Kept = b.Through, b.Events
	case *tutti.ReportsRetired:
		s.Reports = b
	}
}

// Fleet returns the fleet file. Fleet returns an empty fleet before the first push.
func (s *State) Fleet() tutti.Fleet {
	if s.Registry.Fleet == nil {
		return tutti.Fleet{}
	}
	return *s.Registry.Fleet
}

// Members returns the sorted nodes of a target that have joined. The empty target is the whole fleet.
func (s *State) Members(target string) []tutti.NodeName {
	var out []tutti.NodeName
	for name := range s.Registry.Nodes {
		if s.Member(target, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// NoGroup returns an error if the fleet file has a group with this name. A node cannot have the name of a group, because
// a plan, a pause or an access could then mean both.
func (s *State) NoGroup(name string) error {
	if slices.ContainsFunc(s.Fleet().Groups, func(g tutti.Group) bool { return string(g.Name) == name }) {
		return tutti.Errorf(tutti.CodeConflict, "the fleet file has a group %q, so a node cannot have this name", name)
	}
	return nil
}

// NoNodes returns an error if a node that has joined has the name of one of these groups.
func (s *State) NoNodes(groups []tutti.Group) error {
	for _, g := range groups {
		if s.Registry.Nodes[tutti.NodeName(g.Name)] != nil {
			return tutti.Errorf(tutti.CodeConflict, "group %q: a node with this name has joined; name the group otherwise, or remove the node: tutti node remove %s", string(g.Name), g.Name)
		}
	}
	return nil
}

// Member reports whether a node that has joined belongs to a target.
func (s *State) Member(target string, name tutti.NodeName) bool {
	n := s.Registry.Nodes[name]
	return n != nil && (target == "" || target == string(name) || slices.Contains(s.Registry.Groups(n), tutti.GroupName(target)) ||
		s.Registry.in(n, tutti.GroupName(target)))
}

// Unjoined returns the sorted nodes of a group that have not joined, although the fleet file lists them. If the
// group is empty, Unjoined returns the nodes of all groups.
func (s *State) Unjoined(group string) []tutti.NodeName {
	var out []tutti.NodeName
	for _, g := range s.Fleet().Groups {
		for _, n := range g.Nodes {
			if (group == "" || group == string(g.Name)) && s.Registry.Nodes[n] == nil {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ProgramOf returns the program with which a node runs if the step does not set one.
func (s *State) ProgramOf(name tutti.NodeName) tutti.Program {
	n := s.Registry.Nodes[name]
	if s.Registry.Fleet == nil || n == nil {
		return tutti.ProgramApply
	}
	return s.Registry.Fleet.ProgramOf(s.Registry.Groups(n))
}

// UsualOf returns how a node runs Puppet if a step does not say so.
func (s *State) UsualOf(name tutti.NodeName) engine.Usual {
	n, f := s.Registry.Nodes[name], s.Registry.Fleet
	if f == nil || n == nil {
		return engine.Usual{Program: tutti.ProgramApply}
	}
	groups := s.Registry.Groups(n)
	// if neither a group nor the ENC sets an environment, a running job keeps the fleet's environment
	return engine.Usual{Program: f.ProgramOf(groups), Environment: f.EnvironmentBy(groups, n.Classified)}
}

// Classifies reports whether the answer of the ENC matters for a node. With `mode: agent` the Puppet Server has its own
// ENC.
func (s *State) Classifies(name tutti.NodeName) bool { return s.ProgramOf(name) == tutti.ProgramApply }

// JobWith returns the beginning of a job that keeps the given code of each environment. The other fields are empty.
func (s *State) JobWith(f tutti.Fleet, codes map[string]tutti.Digest) *tutti.JobStarted {
	out := &tutti.JobStarted{Env: f.Environment.Name, Code: codes[f.Environment.Name]}
	for environment, code := range codes {
		source := s.Registry.Sources[code]
		if commit := source.Short(); commit != "" {
			if out.Commits == nil {
				out.Commits = map[string]string{}
			}
			out.Commits[environment] = commit
		}
	}
	maps.DeleteFunc(codes, func(environment string, code tutti.Digest) bool { return environment == out.Env || code == "" })
	if len(codes) > 0 {
		out.Codes = codes
	}
	return out
}

// WhyObserved returns why Tutti starts nothing on a node. The text is empty if the node is not observed.
func (s *State) WhyObserved(name tutti.NodeName) string {
	n := s.Registry.Nodes[name]
	if s.Registry.Fleet == nil || n == nil {
		return ""
	}
	return s.Registry.Fleet.WhyObserved(s.Registry.Groups(n))
}

// Runs reports whether converging may start runs on a node that belongs to a target.
func (s *State) Runs(target string, name tutti.NodeName) bool {
	return s.Member(target, name) && s.WhyObserved(name) == ""
}

// Has returns the inputs of a node's runs: its version of Puppet, and the settings of the fleet file.
func (s *State) Has(name tutti.NodeName, puppet string) converge.Has {
	f := s.Fleet()
	var groups []tutti.GroupName
	var classified *tutti.Classification
	if n := s.Registry.Nodes[name]; n != nil {
		groups, classified = s.Registry.Groups(n), n.Classified
	}
	mayRead := policy.KeysOf(f, groups, name).Reads
	meant := func(targets []string) bool { return tutti.Targets(targets, name, groups) }
	return converge.Has{
		MayRead: mayRead, Meant: meant, Puppet: puppet, Program: s.ProgramOf(name), Environment: f.EnvironmentFor(groups, classified), Groups: groups,
		Named:      f.EnvironmentBy(groups, classified) != "",
		Classified: classified != nil && s.Classifies(name),
		Volatile:   f.VolatileFacts, Recorded: policy.Compiles(f),
	}
}

// Job returns the job with this id. For an empty id, Job returns the latest job. If the job was
// retired, the error says how many jobs the server keeps.
func (s *State) Job(id tutti.JobID, kept int) (*engine.Job, error) {
	if id == "" && len(s.Engine.Order) > 0 {
		id = s.Engine.Order[len(s.Engine.Order)-1]
	}
	j := s.Engine.Jobs[id]
	if j == nil && s.Engine.Retired(id) {
		return nil, tutti.Errorf(tutti.CodeNotFound, "job %q is not kept any more: the server keeps the latest %d jobs (--keep-jobs); see: tutti job list", string(id), kept)
	}
	if j == nil {
		return nil, tutti.Errorf(tutti.CodeNotFound, "there is no job %q; see: tutti job list", string(id))
	}
	return j, nil
}
