package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Local are the actions that root can do on a node without the server.
type Local interface {
	// Status returns what the node has stored. Status does not need a running agent.
	Status(dir string) (LocalStatus, error)
	// Run makes the agent begin a run. While the run goes on, Run yields what happens in it. At the end Run returns
	// the run.
	Run(ctx context.Context, dir string, mode tutti.Mode, yield func(tutti.Live)) (LocalRun, error)
	// Log yields the log of a run and returns the run. If `run` is empty, Log uses the latest run.
	Log(dir, run string, yield func(api.LogLine) error) (LocalRun, error)
}

// LocalStatus is what a node has stored about itself.
type LocalStatus struct {
	Node   tutti.NodeName `json:"node"`
	Server string         `json:"server"` // the server's address
	Agent  bool           `json:"agent"`  // an agent runs here
	// when the server last answered, with a precision of five minutes
	Reached time.Time `json:"reached,omitzero"`
	// when the node will make a safety run if the server stays away
	Safety time.Time     `json:"safety_at,omitzero"`
	After  time.Duration `json:"safety_when_away,omitempty"`
	// NoSafety is the reason why the node will not make a safety run. If Safety is zero, NoSafety has a text.
	NoSafety    string       `json:"no_safety,omitempty"`
	Environment string       `json:"environment,omitempty"`
	Code        tutti.Digest `json:"code,omitempty"`
	As          tutti.RunID  `json:"as,omitempty"` // a local run uses the code of this run
	HeldBy      tutti.JobID  `json:"held_by,omitempty"`
	// number of ended runs that the server has not received yet
	Waiting int        `json:"waiting,omitempty"`
	Runs    []LocalRun `json:"runs,omitempty"` // the latest first
}

// LocalRun is a run with a directory on the node.
type LocalRun struct {
	Run    tutti.RunID   `json:"run"`
	Job    tutti.JobID   `json:"job,omitempty"`
	Local  *tutti.Local  `json:"local,omitempty"` // nil if the server ordered the run
	Mode   tutti.Mode    `json:"mode"`
	Began  time.Time     `json:"began,omitzero"`
	Result *tutti.Result `json:"result,omitempty"` // nil: the run goes on
	Told   bool          `json:"told,omitempty"`   // the server has the result, or will get it later
	// Refused is the reason why the server refused the result and counts the run as failed. Refused is empty if the
	// server has accepted the result or has not received it yet.
	Refused string `json:"refused,omitempty"`
}

const shownLocal = 10

func newLocalCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run Puppet on this node while its server is away, as root",
		Long: `Use these commands on the node itself, when the server cannot be reached.
None of these commands needs the server. A local run uses the code of the last full run
that passed its gate here, and the last known answers. It publishes nothing. The agent
reports the run to the server when the server is back.`,
	}
	cmd.AddCommand(newLocalStatusCommand(o), newLocalRunCommand(o), newLocalLogCommand(o))
	return cmd
}

func newLocalStatusCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show what this node knows of its server, its code and its last runs",
		Example: "  tutti local status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.deps.Local.Status(dir)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), s)
			}
			printLocalStatus(cmd.OutOrStdout(), s, time.Now())
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultAgentDir, "the agent's state directory")
	return cmd
}

func newLocalRunCommand(o *options) *cobra.Command {
	var dir string
	var noop bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run Puppet now, with the code and answers that this node knows",
		Long: `The agent starts the run, with the same lock and the same record as a run
that the server orders. If the run asks a question that was never answered before, the
run ends as waiting and changes nothing. Exit code 0 means that the run ended well.`,
		Example: `  tutti local run --noop
  tutti local run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mode := tutti.ModeApply
			if noop {
				mode = tutti.ModeNoop
			}
			out := cmd.OutOrStdout()
			show := func(l tutti.Live) {
				if !o.json {
					printLocalLive(out, l)
				}
			}
			r, err := o.deps.Local.Run(cmd.Context(), dir, mode, show)
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(out, r)
			} else {
				printLocalEnd(out, r)
			}
			if err == nil && (r.Result == nil || !r.Result.Outcome.Good()) {
				err = CommandExit(ExitFailed)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultAgentDir, "the agent's state directory")
	cmd.Flags().BoolVar(&noop, "noop", false, "change nothing, show what would change")
	return cmd
}

func newLocalLogCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "log [RUN]",
		Short:   "Print the log of a run of this node (default: the latest run)",
		Example: "  tutti local log",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run := ""
			if len(args) == 1 {
				run = args[0]
			}
			lines := []api.LogLine{}
			r, err := o.deps.Local.Log(dir, run, func(l api.LogLine) error {
				lines = append(lines, l)
				return nil
			})
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), struct {
					LocalRun
					Log []api.LogLine `json:"log"`
				}{r, lines})
			}
			printLocalEnd(cmd.OutOrStdout(), r)
			journals := shownJournals{}
			for _, l := range lines {
				journals.printLine(cmd.OutOrStdout(), l)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultAgentDir, "the agent's state directory")
	return cmd
}

func printLocalStatus(w io.Writer, s LocalStatus, now time.Time) {
	agent := "runs"
	if !s.Agent {
		agent = "does not run here: systemctl start tutti-agent"
	}
	printLine(w, "node      %s\nagent     %s\nserver    %s, last answered %s\n", s.Node, agent, s.Server, ago(s.Reached, now))
	switch {
	case s.NoSafety != "":
		printLine(w, "alone     no safety run: %s\n", s.NoSafety)
	case s.Safety.After(now):
		printLine(w, "alone     a safety run in %s, if the server stays away until then\n", short(s.Safety.Sub(now)))
	default:
		fmt.Fprintln(w, "alone     a safety run is due")
	}
	if s.As != "" {
		printLine(w, "code      %s\nas        run %s, the last one that passed its gate\n", codeWords(s.Code, s.Environment), s.As)
	}
	if s.HeldBy != "" {
		printLine(w, "held by   job %s, exclusively\n", s.HeldBy)
	}
	if s.Waiting > 0 {
		printLine(w, "untold    ended runs that the server has not received yet: %d\n", s.Waiting)
	}
	for i, r := range s.Runs {
		if i == shownLocal {
			printLine(w, "  … and %d more\n", len(s.Runs)-shownLocal)
			break
		}
		printLine(w, "%-8s  %s, %s, %s, %s\n", map[bool]string{true: "runs"}[i == 0], r.Run, ago(r.Began, now), r.whose(), r.ended())
	}
}

// codeWords returns a text about the code, in the same form as `tutti run show`. Code of a Puppet Server has no
// digest.
func codeWords(code tutti.Digest, environment string) string {
	if code == "" {
		return "of the Puppet Server, environment " + orDash(environment)
	}
	return fmt.Sprintf("%.12s of environment %s", code.Hex(), environment)
}

// The method `whose` returns the job of a run. For a run that no server ordered, it returns the word for this kind
// of run.
func (r LocalRun) whose() string {
	if r.Local != nil || r.Job == "" {
		return foreignWord(r.Local)
	}
	return "job " + string(r.Job)
}

func (r LocalRun) ended() string {
	if r.Result == nil {
		return "goes on"
	}
	text := outcome(r.Result.Outcome, r.Result.Reason)
	if r.Result.Stopped {
		text = "stopped at its gate"
	}
	if r.Mode != tutti.ModeApply {
		text += " (" + string(r.Mode) + ")"
	}
	if r.Refused != "" {
		text += "; the server refused this result:  " + oneLine(r.Refused, maxLine)
	}
	return text
}

func printLocalLive(w io.Writer, l tutti.Live) {
	switch {
	case l.Resource == "" && l.Phase != "" && l.Message != "":
		printLine(w, "%s: %s\n", l.Phase, oneLine(l.Message, maxLine))
	case l.Resource == "" && l.Phase != "":
		fmt.Fprintln(w, l.Phase)
	case l.Done && (l.Changed || l.Failed):
		word := "changed"
		if l.Failed {
			word = "failed"
		}
		printLine(w, "  %s %s: %s\n", word, l.Resource, oneLine(tutti.WithoutJournal(l.Message), maxLine))
	}
}

func printLocalEnd(w io.Writer, r LocalRun) {
	printLine(w, "run       %s, %s\noutcome   %s\n", r.Run, r.whose(), r.ended())
	if r.Result == nil {
		return
	}
	if c := r.Result.Counts; c.Total > 0 {
		printLine(w, "resources %d: %d changed, %d failed, %d skipped\n", c.Total, c.Changed, c.Failed, c.Skipped)
	}
	if r.Result.Message != "" {
		printLine(w, "message   %s\n", oneLine(r.Result.Message, maxLine))
	}
	for _, f := range r.Result.Failures {
		printLine(w, "  %s\n", f)
	}
}
