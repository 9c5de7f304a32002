package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newRunCommand(o *options) *cobra.Command {
	var l launch
	var noop bool
	var exclusive string
	cmd := &cobra.Command{
		Use:   "run PLAN",
		Short: "Push the code if it changed, run a plan and show it; or show a run",
		Long: `Pushes code and fleet file if they changed. Then the command starts the
plan as a job and shows the job until its end. The job runs on the server. The job goes
on if you end this command or lose the connection.`,
		Example: `  tutti run deploy --noop
  tutti run deploy --exclusive 'release 1.2'
  tutti run deploy --detach`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := api.StartJob{Plan: tutti.PlanName(args[0]), Mode: tutti.ModeApply}
			if noop {
				in.Mode = tutti.ModeNoop
			}
			if cmd.Flags().Changed("exclusive") {
				in.Exclusive = &exclusive
			}
			return o.launch(cmd, l, in)
		},
	}
	l.flags(cmd)
	o.addYes(cmd)
	cmd.Flags().BoolVar(&noop, "noop", false, "change nothing on the nodes and publish nothing: show what would change")
	cmd.Flags().StringVar(&exclusive, "exclusive", "", "keep every other Puppet run away from the nodes while the job lives, for this `reason`")
	cmd.AddCommand(newRunShowCommand(o))
	return cmd
}

// The type `launch` contains the flags that all commands that start a job have.
type launch struct {
	file           string
	noPush, detach bool
}

func (l *launch) flags(cmd *cobra.Command) {
	fileFlag(cmd, &l.file)
	cmd.Flags().BoolVar(&l.noPush, "no-push", false, "use the code and fleet file that the server has")
	cmd.Flags().BoolVar(&l.detach, "detach", false, "print the job's id and return")
}

// The method `launch` pushes code and fleet file if they have changed, starts a job and shows the job.
func (o *options) launch(cmd *cobra.Command, l launch, in api.StartJob) error {
	server, err := o.connect()
	if err != nil {
		return err
	}
	if !l.noPush {
		p, err := o.readPush(pushFlags{file: l.file}, pushChanged)
		if err == nil {
			_, _, err = o.push(cmd, server, p, pushChanged)
		}
		if tutti.CodeOf(err) == tutti.CodeRefused { // some operators may run plans, but not push code
			err = tutti.Wrap("", err, "the server has other code or another fleet file than this directory; --no-push runs what the server has")
		}
		if err != nil {
			return err
		}
	}
	job, err := server.StartJob(cmd.Context(), in)
	if err != nil {
		return err
	}
	if l.detach {
		return o.done(cmd, string(job)+"\n", map[string]any{"job": job})
	}
	return o.watch(cmd, server, job)
}

const (
	watchRetry    = time.Second
	watchDeadline = 2 * time.Minute
)

// The method `watch` shows a job until its verdict. The exit code depends on the verdict. If the server restarts,
// the method waits for the server.
func (o *options) watch(cmd *cobra.Command, server api.Jobs, job tutti.JobID) error {
	return o.watchInto(cmd, server, job, newProgress())
}

// watchInto does the same as the method `watch`. After the call, `p` has the final state of the job.
func (o *options) watchInto(cmd *cobra.Command, server api.Jobs, job tutti.JobID, p *progress) error {
	view := o.newView(cmd, p)
	defer view.close()
	err := follow(cmd.Context(), server, job, p, view)
	view.finish(err)
	if err != nil && cmd.Context().Err() != nil {
		id := cmp.Or(job, p.id)
		fmt.Fprintf(cmd.ErrOrStderr(), "The job goes on. Watch it: tutti job watch %s. End it: tutti job cancel %s\n", id, id)
		return CommandExit(ExitInterrupted)
	}
	if err != nil {
		return err
	}
	return verdictExit(p.job().Verdict)
}

// The function `follow` folds the server's events into p. After a lost connection, the function starts again from
// the first event, and p ignores the events that it has already folded.
func follow(ctx context.Context, server api.Jobs, job tutti.JobID, p *progress, view view) error {
	lost := time.Time{}
	for {
		job = cmp.Or(job, p.id) // after a lost connection, watch the same job again, and not a later job
		p.begin()
		err := server.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
			lost = time.Time{}
			if p.apply(w) {
				view.show(w)
			}
			return nil
		})
		if err == nil || ctx.Err() != nil || tutti.CodeOf(err) != tutti.CodeUnavailable {
			return err
		}
		if lost.IsZero() {
			lost = time.Now()
			view.say("the server is away; the job goes on when it is back")
		}
		if time.Since(lost) > watchDeadline {
			return tutti.Wrap(tutti.CodeUnavailable, err, "the server is away for %s", watchDeadline)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(watchRetry):
		}
	}
}

var errNoVerdict = errors.New("the job has no verdict")

func verdictExit(v tutti.Verdict) error {
	switch v {
	case tutti.VerdictSucceeded, tutti.VerdictConverged:
		return nil
	case tutti.VerdictStuck:
		return CommandExit(ExitStuck)
	case tutti.VerdictDiverging:
		return CommandExit(ExitDiverging)
	case tutti.VerdictPartial:
		return CommandExit(ExitPartial)
	case tutti.VerdictDeferred:
		return CommandExit(ExitDeferred)
	case tutti.VerdictFailed:
		return CommandExit(ExitFailed)
	case tutti.VerdictCancelled:
		return CommandExit(ExitCancelled)
	case "":
		return errNoVerdict
	}
	return CommandExit(ExitFailed) // the verdict is from a later release, so nobody knows whether it is good
}
