package converge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

// The constant maxDiffCompiles is how often a node compiles in one job for a diff. A node compiles again if the exports
// of other nodes in the job have changed its answers.
const maxDiffCompiles = 5

// The type `comparing` contains the data of one decision about a job that compiles for a diff (ADR 0038).
type comparing struct {
	state *State
	view  View
	job   *engine.Job
	step  *engine.Step

	tally     *tally           // what the nodes do now
	compiling int              // nodes whose run goes on, with the runs that this decision begins
	full      bool             // a node cannot begin yet because of a limit
	not       []tutti.NodeName // nodes that cannot begin, as far as the limits let the decision look
	out       []tutti.Body
}

// The function `diff` decides about a job that compiles for a diff. All nodes compile at once, and each run is stopped at
// its gate. When all nodes have ended, nodes compile again if the exports of the others have changed what they
// collect. So no run waits at its gate for another node, and nothing here changes what the fleet needs.
func diff(s *State, v View, j *engine.Job, st *engine.Step) []tutti.Body {
	c := &comparing{state: s, view: v, job: j, step: st, tally: s.diffs.of(s, j, st)}
	held := c.tally.names[atGate]
	for _, n := range held {
		c.out = append(c.out, &tutti.RunGated{Run: s.engine.Active[n], Verdict: tutti.GateStop, Reason: "asked only to compile"})
	}
	c.compiling = len(c.tally.names[compiles]) + len(held)
	idle := func() bool { return c.compiling == 0 && len(c.tally.names[hasOther]) == 0 && !c.full }
	if c.begin(c.tally.names[mayBegin]); idle() {
		c.begin(c.again())
	}
	if idle() {
		verdict, message := c.verdict()
		c.out = append(c.out, &tutti.ConvergeFinished{Job: j.ID, Step: st.Name, Verdict: verdict, Message: message})
	}
	return c.out
}

// The method `ended` returns the last runs of the nodes that have compiled, or failed.
func (c *comparing) ended() []*engine.Run {
	var out []*engine.Run
	for _, n := range c.tally.names[hasEnded] {
		out = append(out, lastOf(c.runs(n)))
	}
	return out
}

// The method `runs` returns the runs of a node in the job.
func (c *comparing) runs(n tutti.NodeName) []*engine.Run { return runsIn(c.state, c.step, n) }

// The method `able` reports whether a node can begin to compile. The server has checked this when the job began, but
// something may have changed since then.
func (c *comparing) able(n tutti.NodeName) bool {
	has := c.view.Has(n)
	return c.state.nodes[n] && has.Program == tutti.ProgramApply && has.Environment == c.job.Env &&
		c.view.Paused(n) == "" && c.view.connected(n) && c.state.engine.ExclusiveOn(n) == nil
}

// The method `again` returns the nodes whose answers have changed because other nodes of the job have compiled.
func (c *comparing) again() []tutti.NodeName {
	var out []tutti.NodeName
	for _, r := range c.ended() {
		if c.moved(r) && len(c.runs(r.Node)) < maxDiffCompiles {
			out = append(out, r.Node)
		}
	}
	return out
}

// The method `moved` reports whether what a compile collected is out of date in the view of the job. Other answers do
// not depend on the job's compiles.
func (c *comparing) moved(r *engine.Run) bool {
	if r.Asked == nil {
		return false
	}
	var collected []tutti.Read
	for _, read := range r.Asked.Reads {
		if read.Query.Kind == tutti.QueryCollect {
			collected = append(collected, read)
		}
	}
	return len(c.state.data.Outdated(collected, data.Asker{Node: r.Node, Job: c.job.ID, Overlay: true})) > 0
}

// The method `begin` lets nodes compile, as many at once as the limits allow.
func (c *comparing) begin(nodes []tutti.NodeName) {
	busy := len(c.state.engine.Active)
	for _, n := range nodes {
		limit := c.step.Converge.Limit
		if c.view.Hold || c.view.InFlight > 0 && busy >= c.view.InFlight ||
			c.view.Compiles > 0 && c.compiling >= c.view.Compiles || limit > 0 && c.compiling >= limit {
			c.full = true
			return
		}
		if !c.able(n) { // this costs much more than a look at the limits
			c.not = append(c.not, n)
			continue
		}
		order := c.job.Want(c.step, n, len(c.runs(n))+1, engine.Usual{Environment: c.job.Env})
		c.out = append(c.out, &tutti.RunWanted{Order: order})
		c.compiling, busy = c.compiling+1, busy+1
	}
}

// The method `verdict` describes how the job ended.
func (c *comparing) verdict() (tutti.Verdict, string) {
	var failed, moving []tutti.NodeName
	ended := c.ended()
	for _, r := range ended {
		switch {
		case !Compiled(r):
			failed = append(failed, r.Node)
		case c.moved(r):
			moving = append(moving, r.Node)
		}
	}
	parts := []string{fmt.Sprintf("%d of %d nodes compiled", len(ended)-len(failed)-len(moving), len(c.step.Converge.Only))}
	tell := func(what string, nodes []tutti.NodeName) {
		if slices.Sort(nodes); len(nodes) > 0 {
			parts = append(parts, what+": "+list(nodes))
		}
	}
	tell("did not compile", failed)
	tell("the nodes keep changing each other's answers", moving)
	tell("could not begin", c.not)
	verdict := tutti.VerdictSucceeded
	switch {
	case len(failed)+len(moving) > 0:
		verdict = tutti.VerdictFailed
	case len(c.not) > 0:
		verdict = tutti.VerdictPartial
	}
	return verdict, strings.Join(parts, "\n")
}

// Compiled reports whether a run for a diff has compiled its catalog.
func Compiled(r *engine.Run) bool {
	return r.Ended() && r.Lost == "" && r.Compiled != nil && r.Gate == tutti.GateStop && r.Result != nil && r.Result.Stopped
}
