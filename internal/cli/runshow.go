package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// runJSON is a run in the form for programs.
type runJSON struct {
	api.RunReport
	Log []api.LogLine `json:"log"` // only warnings and errors, or all lines with --logs
	// NoLog is the reason why there is no log.
	NoLog string `json:"no_log,omitempty"`
}

func newRunShowCommand(o *options) *cobra.Command {
	var logs bool
	cmd := &cobra.Command{
		Use:   "show RUN|NODE",
		Short: "Show what a run changed and where it failed, from Puppet's report",
		Long: `Shows how a run ended, its resources by outcome, and the slowest
resources. For changes and failures, the command shows the old and the new value. The
command also shows the warnings and errors of the run's log. Values that Puppet
marks as Sensitive are shown as [redacted].

RUN is the run's id. The beginning or the end of the id is enough if no other run has
it. NODE shows the latest run of that node, even while it goes on. If the argument fits
a run and a node, the command shows the latest run of the node.`,
		Example: `  tutti run show web-01
  tutti run show web-01 --logs`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			out := runJSON{Log: []api.LogLine{}}
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
	cmd.Flags().BoolVar(&logs, "logs", false, "show the whole log, not only its warnings and errors")
	return cmd
}

// readLog returns the log of an ended run, or the reason why there is no log.
func (r *runJSON) readLog(ctx context.Context, server api.Reports, all bool) error {
	err := server.RunLog(ctx, r.Run, func(l api.LogLine) error {
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
