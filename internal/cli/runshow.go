package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// runJSON is a run for programs.
type runJSON struct {
	tutti.RunReport
	Log []tutti.LogLine `json:"log"` // warnings and errors, or all with --logs
	// NoLog says why there is none.
	NoLog string `json:"no_log,omitempty"`
}

func newRunShowCommand(o *options) *cobra.Command {
	var logs bool
	cmd := &cobra.Command{
		Use:   "show RUN|NODE",
		Short: "Show what a run changed and where it failed, by Puppet's report",
		Long: `Shows a run: how it ended, its resources by outcome, what changed and failed with
old and new value, the slowest resources, and the warnings and errors of its log.
RUN is the run's id, or a beginning or an end of it that no other run has. NODE is
the name of a node and shows its latest run, which may go on. A name comes before a
part of an id. What Puppet marks Sensitive is [redacted].`,
		Example: "  tutti run show web-01",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			out := runJSON{Log: []tutti.LogLine{}}
			if out.RunReport, err = server.RunReport(cmd.Context(), args[0]); err != nil {
				return err
			}
			if err := out.readLog(cmd.Context(), server, logs); err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), out)
			}
			printRun(cmd.OutOrStdout(), out, logs, time.Now())
			return nil
		},
	}
	cmd.Flags().BoolVar(&logs, "logs", false, "the whole log, not its warnings and errors alone")
	return cmd
}

// readLog reads the log of a run that has ended, or why there is none.
func (r *runJSON) readLog(ctx context.Context, server tutti.Reports, all bool) error {
	err := server.RunLog(ctx, r.Run, func(l tutti.LogLine) error {
		if all || serious[l.Level] {
			r.Log = append(r.Log, l)
		}
		return nil
	})
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		r.NoLog = err.Error()
		return nil
	}
	return err
}

// serious are the levels of Puppet's log that are always shown.
var serious = map[string]bool{"warning": true, "err": true, "alert": true, "emerg": true, "crit": true}
