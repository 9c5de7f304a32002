package converge

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `rollout` describes how the nodes of an environment react while the last pushed code is held.
type rollout struct {
	pushed   tutti.CodePushed
	ahead    map[tutti.NodeName]bool // nodes that have run with this code, or are running with it
	canaries map[tutti.NodeName]bool // nodes that may run with this code, including the nodes in `ahead`
	could    int                     // number of nodes with program `apply`, which could run with the pushed code
}

// rolloutsOf returns the rollouts of all environments whose code is held.
func rolloutsOf(s *State, v View) map[string]*rollout {
	var out map[string]*rollout
	for environment, pushed := range s.pushed {
		if !pushed.Held {
			continue
		}
		if out == nil {
			out = map[string]*rollout{}
		}
		out[environment] = s.rollout(v, pushed)
	}
	return out
}

// The function `byEnvironment` returns rollouts in the order of their environments.
func byEnvironment(rollouts map[string]*rollout) []*rollout {
	var out []*rollout
	for _, environment := range slices.Sorted(maps.Keys(rollouts)) {
		out = append(out, rollouts[environment])
	}
	return out
}

// The method `rollout` looks at all nodes of the environment of a push.
func (s *State) rollout(v View, pushed tutti.CodePushed) *rollout {
	out := &rollout{pushed: pushed, ahead: map[tutti.NodeName]bool{}, canaries: map[tutti.NodeName]bool{}}
	var first, more []tutti.NodeName
	for n := range s.nodes {
		if has := v.Has(n); has.Program == tutti.ProgramAgent || has.Environment != pushed.Environment {
			continue
		}
		out.could++
		switch last := s.engine.Last(n).Applied; {
		case last != nil && last.Program != tutti.ProgramAgent && last.Code == pushed.Code:
			out.ahead[n], out.canaries[n] = true, true
		case !v.connected(n) || v.Paused(n) != "" || s.letAlone(n):
		case s.passedOver(pushed, n):
			first = append(first, n)
		default:
			more = append(more, n)
		}
	}
	if len(out.canaries) >= pushed.Canary {
		return out
	}
	byLot := func(a, b tutti.NodeName) int {
		return cmp.Or(cmp.Compare(lot(a, pushed.Code), lot(b, pushed.Code)), cmp.Compare(a, b))
	}
	for _, n := range slices.Concat(slices.SortedFunc(slices.Values(first), byLot), slices.SortedFunc(slices.Values(more), byLot)) {
		if len(out.canaries) >= pushed.Canary {
			break
		}
		out.canaries[n] = true
	}
	return out
}

// The function `lot` returns a node's place in the random order of canaries for some code.
func lot(n tutti.NodeName, code tutti.Digest) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(code) + string(n)))
	return h.Sum64()
}

// passedOver reports whether a node's last run had code that was never released.
func (s *State) passedOver(pushed tutti.CodePushed, n tutti.NodeName) bool {
	last := s.engine.Last(n).Applied
	return last != nil && last.Program != tutti.ProgramAgent && slices.Contains(pushed.PassedOver, last.Code)
}

// codeOf returns the code with which a node runs by itself. The code is empty if the node runs with the code of a Puppet
// Server. The method returns false if the node does not run by itself. There are two reasons not to run by itself. No
// code was released yet, or the node's last run had code that was never released.
func (s *State) codeOf(v View, n tutti.NodeName) (tutti.Digest, bool) {
	has := v.Has(n)
	r := v.rollouts[has.Environment]
	switch {
	case has.Program == tutti.ProgramAgent:
		return "", true
	case r == nil, r.canaries[n]:
		code := s.pushed[has.Environment].Code
		return code, code != ""
	case s.passedOver(r.pushed, n):
		return "", false
	}
	return r.pushed.Goes(), r.pushed.Goes() != ""
}

// A job has only one code of each environment. For each environment whose code is held, ofOneCode chooses this code: the
// pushed code if a given node runs with it by itself, otherwise the released code. It returns the nodes that run with the
// chosen codes.
func (s *State) ofOneCode(v View, nodes []tutti.NodeName, codes map[string]tutti.Digest) []tutti.NodeName {
	if len(v.rollouts) == 0 {
		return nodes
	}
	ahead := map[string]bool{}
	for _, n := range nodes {
		if r := v.rollouts[v.Has(n).Environment]; r != nil && r.canaries[n] {
			ahead[r.pushed.Environment] = true
		}
	}
	for environment, r := range v.rollouts {
		if !ahead[environment] {
			codes[environment] = r.pushed.Goes()
		}
	}
	return slices.DeleteFunc(nodes, func(n tutti.NodeName) bool {
		has := v.Has(n)
		code, known := s.codeOf(v, n)
		return !known || has.Program != tutti.ProgramAgent && code != codes[has.Environment]
	})
}

// The method `reacts` judges a node with the code that the node uses when it runs by itself.
func (s *State) reacts(v View, n tutti.NodeName, standing Standing) (Standing, tutti.Digest, bool) {
	code, known := s.codeOf(v, n)
	if has := v.Has(n); known && has.Program != tutti.ProgramAgent && code != s.pushed[has.Environment].Code {
		standing = s.standing(n, "", code, has)
	}
	return standing, code, known && standing.Need != Nothing
}

// heldBack explains what the held code waits for.
func (r *rollout) heldBack() string {
	if r.pushed.Canary == 0 {
		return "the code that was pushed waits for a person: the node runs after `tutti code release`"
	}
	return fmt.Sprintf("the code that was pushed waits until %s with this code: the node runs then, or after `tutti code release`", canaries(r.pushed.Canary, "is good", "are good"))
}

// canaries returns a number of nodes with a verb, for example "2 nodes are good".
func canaries(n int, one, many string) string {
	if n == 1 {
		return "1 node " + one
	}
	return fmt.Sprintf("%d nodes %s", n, many)
}

// The method `release` returns the event that ends a hold whose canaries are good. The result is nil if the canaries
// are not good.
func (s *State) release(v View, r *rollout) *tutti.CodeReleased {
	if r.pushed.Canary == 0 || len(r.ahead) < min(r.pushed.Canary, r.could) || r.could == 0 {
		return nil
	}
	for n := range r.ahead {
		standing := s.Standing(n, v.Has(n))
		if restless := standing.Facts && s.engine.Facts(n).KeepChanging(); s.engine.Active[n] != "" || standing.Need != Nothing && !restless {
			return nil
		}
	}
	return &tutti.CodeReleased{Environment: r.pushed.Environment, Code: r.pushed.Code, Reason: canaries(len(r.ahead), "is good with it", "are good with it")}
}

// releasedBy returns the events that end the holds of a job's code after a person's converge of the whole fleet. The
// method returns none if the job is not a converge of the whole fleet by a person.
func (s *State) releasedBy(j *engine.Job, st *engine.Step, verdict tutti.Verdict) []tutti.Body {
	if st.Converge.Reaction || st.Converge.Target != "" || j.Mode != tutti.ModeApply || verdict != tutti.VerdictConverged && verdict != tutti.VerdictPartial {
		return nil
	}
	var out []tutti.Body
	for _, environment := range slices.Sorted(maps.Keys(s.pushed)) {
		pushed := s.pushed[environment]
		of, code := j.CodeOf(environment)
		if pushed.Held && of == environment && code == pushed.Code {
			out = append(out, &tutti.CodeReleased{Environment: environment, Code: code, Reason: fmt.Sprintf("job %s is %s", j.ID, verdict)})
		}
	}
	return out
}
