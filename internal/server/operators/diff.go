package operators

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
)

// startDiff starts a job whose nodes compile code that they never apply (ADR 0038).
func (s *Operators) startDiff(ctx context.Context, in api.StartJob) (tutti.JobID, error) {
	diff := *in.Diff
	diff.Nodes = slices.Compact(slices.Sorted(slices.Values(diff.Nodes)))
	switch {
	case in.Mode != tutti.ModeCompile || in.Plan != "" || in.Converge != nil || in.Runs != nil || in.Exclusive != nil:
		return "", tutti.Errorf(tutti.CodeInvalid, "a diff has mode compile, and no plan and no other runs")
	case len(diff.Nodes) == 0 || len(diff.Nodes) > maxRuns || diff.Limit < 0:
		return "", tutti.Errorf(tutti.CodeInvalid, "a diff of %d nodes, %d at once: at least 1 and at most %d nodes", len(diff.Nodes), diff.Limit, maxRuns)
	}
	said, signed, err := s.storeDiff(ctx, diff.Code)
	if err != nil {
		return "", err
	}
	var id tutti.JobID
	return id, s.do(ctx, func(tx *tx) error {
		body := &tutti.JobStarted{
			Mode: in.Mode, Env: said.Environment, Code: said.Digest, Diff: &tutti.DiffCode{Signed: signed, Statement: *diff.Code.Statement},
			Plan: tutti.Plan{Name: api.DiffPlan, Steps: []tutti.Step{{
				Name: tutti.StepName(api.DiffPlan), Timeout: fleet.DefaultRunTimeout, Converge: &tutti.ConvergeStep{Limit: diff.Limit, Only: diff.Nodes},
			}}},
		}
		if err := tx.MayRun(ctx, "compile on "+several(diff.Nodes), body.Plan, in.Mode, diff.Nodes); err != nil {
			return err
		}
		if err := tx.allJoined(map[tutti.StepName][]tutti.NodeName{tutti.StepName(api.DiffPlan): diff.Nodes}); err != nil {
			return err
		}
		if err := tx.fewUnfinished(ctx); err != nil {
			return err
		}
		// A rotation of the key may have ended meanwhile.
		if _, err := s.Opts.Identity.Compile(tx.Registry.Trust, diff.Code); err != nil {
			return err
		}
		if other := tx.openDiff(); other != "" {
			return tutti.Errorf(tutti.CodeUnavailable, "job %s compiles for another diff: wait for its end, or cancel it with: tutti job cancel %s --now", other, other)
		}
		tx.leaveOut(body)
		id = tx.Engine.NextJob(body.Plan.Name)
		body.Job = id
		tx.Emit(tutti.Actor(ctx), body)
		return nil
	})
}

// openDiff returns a job for a diff that has not ended. Diffs take turns, because each of them may let a node compile again.
func (tx *tx) openDiff() tutti.JobID {
	for _, id := range slices.Backward(tx.Engine.Order) {
		if j := tx.Engine.Jobs[id]; j.Diff != nil && !j.Ended() {
			return id
		}
	}
	return ""
}

// storeDiff checks the code of a diff, and stores its manifest. All files must be on the server already.
func (s *Operators) storeDiff(ctx context.Context, in tutti.SignedCode) (said tutti.SignedCompile, stored tutti.Digest, err error) {
	var trust []tutti.Statement
	if err := s.do(ctx, func(tx *tx) error {
		trust = slices.Clone(tx.Registry.Trust)
		return nil
	}); err != nil {
		return said, "", err
	}
	if said, err = s.Opts.Identity.Compile(trust, in); err == nil {
		err = said.At(time.Now())
	}
	if err != nil {
		return said, "", err
	}
	manifest, err := core.Decode[tutti.CodeManifest]("manifest", in.Manifest)
	if err == nil {
		err = manifest.Validate()
	}
	if err != nil {
		return said, "", err
	}
	if len(manifest.Files) > core.MaxCodeFiles {
		return said, "", tutti.Errorf(tutti.CodeInvalid, "%d files, at most %d", len(manifest.Files), core.MaxCodeFiles)
	}
	for name, f := range manifest.Files {
		if f.Link != "" {
			continue
		}
		if has, err := s.Opts.Blobs.Has(ctx, f.Digest); err != nil || !has {
			return said, "", tutti.Wrap(tutti.CodeConflict, core.OrMissing(err), "%s", name)
		}
	}
	raw, err := json.Marshal(tutti.SignedCode{Manifest: in.Manifest})
	if err != nil {
		return said, "", err
	}
	stored, err = s.Opts.Blobs.Put(ctx, raw)
	return said, stored, err
}

// leaveOut removes from a job for a diff the nodes that cannot compile its code now. The job names them with the reasons.
func (tx *tx) leaveOut(job *tutti.JobStarted) {
	spec := job.Plan.Steps[0].Converge
	paused := tx.PausedOrHeld()
	left := map[tutti.NodeName]string{}
	var nodes []tutti.NodeName
	for _, n := range spec.Only {
		usual := tx.UsualOf(n)
		environment := cmp.Or(usual.Environment, tx.Fleet().Environment.Name)
		seen, _ := tx.Core.Presence.Last(n)
		switch why := paused(n); {
		case tx.WhyObserved(n) != "":
			left[n] = "Tutti starts nothing there: " + tx.WhyObserved(n)
		case usual.Program != tutti.ProgramApply:
			left[n] = "its Puppet Server has the code (mode: agent): name the host of the Puppet Server with --compile-host"
		case environment != job.Env:
			left[n] = fmt.Sprintf("it uses environment %s, not %s", environment, job.Env)
		case why != "":
			left[n] = why
		case seen.IsZero() || tx.Now.Sub(seen) >= tx.Core.Opts.Silence:
			left[n] = "it is not connected"
		default:
			nodes = append(nodes, n)
			continue
		}
		left[n] = plain.Words(left[n])
	}
	if spec.Only = nodes; len(left) > 0 {
		job.Diff.Left = left
	}
}
