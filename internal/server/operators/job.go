package operators

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/wire"
)

// StartJob implements tutti.Jobs. If StartJob fails, it has started nothing.
func (s *Operators) StartJob(ctx context.Context, in api.StartJob) (tutti.JobID, error) {
	if in.Mode != tutti.ModeApply && in.Mode != tutti.ModeNoop && (in.Mode != tutti.ModeCompile || in.Converge == nil && in.Diff == nil) {
		return "", tutti.Errorf(tutti.CodeInvalid, "mode %q: a plan runs as apply or noop", string(in.Mode))
	}
	if in.Converge != nil && in.Converge.Reaction { // the fleet's own reactions would wait for such a job
		return "", tutti.Errorf(tutti.CodeInvalid, "reaction: only the server begins one")
	}
	if err := s.Opts.Space(); err != nil {
		return "", err
	}
	if in.Diff != nil {
		return s.startDiff(ctx, in)
	}
	if in.Converge != nil && len(in.Converge.Only) > 0 {
		return "", tutti.Errorf(tutti.CodeInvalid, "only: only a diff lists the nodes that converge")
	}
	if in.Runs != nil { // outside of the writer, because the list may be long
		runs := *in.Runs
		runs.Nodes = slices.Compact(slices.Sorted(slices.Values(runs.Nodes)))
		if len(runs.Nodes) > maxRuns {
			return "", tutti.Errorf(tutti.CodeInvalid, "runs on %d nodes: at most %d", len(runs.Nodes), maxRuns)
		}
		in.Runs = &runs
	}
	if err := s.awaitMatches(ctx, in); err != nil {
		return "", err
	}
	var id tutti.JobID
	err := s.do(ctx, func(tx *tx) error {
		f := tx.Registry.Fleet
		if f == nil {
			return tutti.Errorf(tutti.CodeNotFound, "the server has no fleet file yet; push it with: tutti code push")
		}
		body := tx.JobWith(*f, tx.Registry.Codes())
		body.Mode = in.Mode
		var err error
		if body.Plan, body.Targets, err = tx.plan(*f, in); err != nil {
			return err
		}
		var nodes []tutti.NodeName
		for _, of := range body.Targets {
			nodes = append(nodes, of...)
		}
		if err := tx.MayRun(ctx, startOf(in), body.Plan, in.Mode, nodes); err != nil {
			return err
		}
		if err := tx.NoneObserved(nodes); err != nil {
			return err
		}
		if err := tx.fewUnfinished(ctx); err != nil {
			return err
		}
		if body.Plan.Exclusive, err = exclusive(body.Plan, body.Targets, in); err != nil {
			return err
		}
		if err := tx.hasCode(body); err != nil {
			return err
		}
		id = tx.Engine.NextJob(body.Plan.Name)
		body.Job = id
		tx.Emit(tutti.Actor(ctx), body)
		return nil
	})
	return id, err
}

// startOf describes for people what an operator wants to start.
func startOf(in api.StartJob) string {
	switch {
	case in.Converge != nil:
		return "converge " + cmp.Or(in.Converge.Target, "the fleet")
	case in.Runs != nil:
		return "run Puppet on " + several(in.Runs.Nodes)
	}
	return "run " + string(in.Plan)
}

// The function `several` returns a text with the first few names of nodes or jobs, and the number of the
// others.
func several[Name ~string](names []Name) string {
	const most = 5
	var out []string
	for _, n := range names[:min(most, len(names))] {
		out = append(out, string(n))
	}
	if more := len(names) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// hasCode refuses a job if one of its nodes runs by `puppet apply`, and the job has no code of the node's environment.
func (tx *tx) hasCode(job *tutti.JobStarted) error {
	for _, st := range job.Plan.Steps {
		nodes := job.Targets[st.Name]
		var options tutti.RunOptions
		switch st.Kind() {
		case tutti.StepConverge:
			nodes = tx.Members(st.Converge.Target)
		case tutti.StepRun:
			options = st.Run.RunOptions
		case tutti.StepWait, tutti.StepSleep: // these steps have no nodes
		}
		for _, n := range nodes {
			usual := tx.UsualOf(n)
			if cmp.Or(options.Program, usual.Program) != tutti.ProgramApply {
				continue
			}
			switch environment := cmp.Or(options.Environment, usual.Environment, job.Env); {
			case environment == "":
				return tutti.Errorf(tutti.CodeInvalid, "%s runs by `puppet apply`, and the fleet file has no environment; add one, or say mode: agent", n)
			case tx.Registry.Code[environment].Code == "" && st.Kind() == tutti.StepConverge && tx.byENC(n, environment):
				continue // an answer of the ENC about one node must not stop the others; the node does not run
			case tx.Registry.Code[environment].Code == "" && tx.byENC(n, environment):
				return tutti.Errorf(tutti.CodeNotFound, "no code was pushed for environment %q, which the ENC gives to %s; add it to the fleet file and push it, or correct the ENC", environment, n)
			case tx.Registry.Code[environment].Code == "":
				return tutti.Errorf(tutti.CodeNotFound, "no code was pushed for environment %q, which %s uses; push it with: tutti code push", environment, n)
			}
		}
	}
	return nil
}

// byENC reports whether the ENC has named the environment of a node.
func (tx *tx) byENC(node tutti.NodeName, environment string) bool {
	n := tx.Registry.Nodes[node]
	return n != nil && n.Classified != nil && n.Classified.Environment == environment && tx.Fleet().Environment.ENC
}

// The method `plan` returns the plan of a job, and the nodes of its steps.
func (tx *tx) plan(f tutti.Fleet, in api.StartJob) (tutti.Plan, map[tutti.StepName][]tutti.NodeName, error) {
	if in.Converge != nil {
		plan, err := tx.ConvergePlan(*in.Converge)
		return plan, nil, err
	}
	if in.Runs != nil {
		return tx.runsPlan(*in.Runs)
	}
	at := slices.IndexFunc(f.Plans, func(p tutti.Plan) bool { return p.Name == in.Plan })
	if at < 0 {
		return tutti.Plan{}, nil, tutti.Errorf(tutti.CodeNotFound, "the fleet file has no plan %q; it has: %s", string(in.Plan), planNames(f))
	}
	if err := tx.allDecided(f.Plans[at]); err != nil {
		return tutti.Plan{}, nil, err
	}
	targets, err := fleet.Resolve(f, tx.Registry.Targets(), f.Plans[at])
	if err == nil {
		err = tx.allJoined(targets)
	}
	for _, st := range f.Plans[at].Steps {
		if err == nil && st.Kind() == tutti.StepConverge {
			err = tx.CanConverge(*st.Converge)
		}
	}
	return f.Plans[at], targets, err
}

// allJoined refuses target nodes that have never joined.
func (tx *tx) allJoined(targets map[tutti.StepName][]tutti.NodeName) error {
	missing := map[string]bool{}
	for _, nodes := range targets {
		for _, n := range nodes {
			if tx.Registry.Nodes[n] == nil {
				missing[string(n)] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(missing))
	return tutti.Errorf(tutti.CodeConflict, "not joined: %s; make a token for each with: tutti token create --name NODE", several(names))
}

func planNames(f tutti.Fleet) string {
	var names []string
	for _, p := range f.Plans {
		names = append(names, string(p.Name))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// CancelJob implements tutti.Jobs. CancelJob changes nothing if the job has ended.
func (s *Operators) CancelJob(ctx context.Context, in api.CancelJob) error {
	rings := map[tutti.NodeKey]tutti.RunID{}
	err := s.do(ctx, func(tx *tx) error {
		j, err := tx.Job(in.Job, tx.Core.Opts.Keep.Jobs)
		if err != nil {
			return err
		}
		if j.Ended() {
			return tutti.Errorf(tutti.CodeConflict, "job %s has ended: %s", j.ID, j.Verdict)
		}
		var nodes []tutti.NodeName
		for _, st := range j.Steps {
			for _, n := range st.Nodes {
				nodes = append(nodes, n.Node)
			}
		}
		if err := tx.MayRun(ctx, "cancel "+string(j.ID), j.Plan, j.Mode, nodes); err != nil {
			return err
		}
		if !j.Cancelled {
			tx.Emit(tutti.Actor(ctx), &tutti.JobCancelled{Job: j.ID, Reason: plain.Line(in.Reason)})
		}
		for node, run := range tx.Engine.Active {
			if n := tx.Registry.Nodes[node]; in.Now && n != nil && tx.Engine.Runs[run].Job == j.ID {
				rings[n.Key] = run
			}
		}
		return nil
	})
	for key, run := range rings {
		payload, _ := json.Marshal(wire.CancelRun{Run: run})
		if err := s.Opts.Bus.Ring(key, wire.RingCancel, payload); err != nil {
			return tutti.Wrap(tutti.CodeUnavailable, err, "tell the node to end run %s", run)
		}
	}
	return err
}

// The function `exclusive` returns the settings of an exclusive job, or nil if the job is not exclusive.
func exclusive(plan tutti.Plan, targets map[tutti.StepName][]tutti.NodeName, in api.StartJob) (*tutti.Exclusive, error) {
	out := plan.Exclusive
	if in.Exclusive != nil {
		reason := plain.Line(*in.Exclusive)
		asked := tutti.DefaultExclusive(reason)
		if out != nil {
			asked = &tutti.Exclusive{Reason: reason, Lease: out.Lease, Wait: out.Wait, Keep: out.Keep}
		}
		out = asked
	}
	if out == nil || in.Mode != tutti.ModeApply {
		return nil, nil
	}
	plan.Exclusive = out
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	for _, nodes := range targets {
		if len(nodes) > 0 {
			return out, nil
		}
	}
	return nil, tutti.Errorf(tutti.CodeInvalid, "plan %q runs on no node, so it cannot be exclusive", string(plan.Name))
}
