package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

func newJobCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "job", Short: "Show, watch and cancel jobs"}
	cmd.AddCommand(newJobListCommand(o), newJobShowCommand(o), newJobWatchCommand(o), newJobCancelCommand(o))
	return cmd
}

func newJobListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List jobs, the latest first",
		Example: "  tutti job list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			jobs, err := server.ListJobs(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), jobs)
			}
			now := time.Now()
			var rows [][]string
			for _, j := range jobs {
				verdict, end := string(j.Verdict), j.EndedAt
				if verdict == "" {
					verdict, end = "running", now
				}
				rows = append(rows, []string{
					string(j.Job), string(j.Plan), string(j.Mode), verdict, ago(j.StartedAt, now), short(end.Sub(j.StartedAt)),
					fmt.Sprint(j.Runs), fmt.Sprint(j.Failed), orDash(tutti.InLine(j.Commits[j.Environment])), because(j.By, j.Cause),
				})
			}
			head := "JOB\tPLAN\tMODE\tVERDICT\tBEGAN\tTOOK\tRUNS\tFAILED\tCOMMIT\tBY"
			if !slices.ContainsFunc(jobs, func(j api.JobView) bool { return j.Commits[j.Environment] != "" }) {
				head = strings.Replace(head, "COMMIT\t", "", 1) // the code comes from no working copy of git
				for i, row := range rows {
					rows[i] = slices.Delete(row, 8, 9)
				}
			}
			err = table(cmd.OutOrStdout(), head, rows)
			for _, j := range jobs {
				if j.Verdict == "" && j.Message != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", j.Job, j.Message)
				}
			}
			return err
		},
	}
}

func newJobShowCommand(o *options) *cobra.Command {
	var with jobParts
	cmd := &cobra.Command{
		Use:     "show [JOB]",
		Short:   "Show how a job's steps and runs ended (default: the latest job)",
		Example: "  tutti job show --changes\n  tutti job show converge-81 --path",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			p := newProgress()
			err = server.WatchJob(cmd.Context(), api.WatchJob{Job: jobArg(args)}, func(w api.Watched) error {
				p.apply(w)
				return nil
			})
			if err != nil {
				return err
			}
			if o.json {
				return o.printJobJSON(cmd, server, p.job(), with)
			}
			printJob(cmd.OutOrStdout(), p.job(), time.Now())
			if p.note != "" {
				fmt.Fprintln(cmd.OutOrStdout(), p.note)
			}
			if with.path {
				printPath(cmd.OutOrStdout(), p.job())
			}
			if with.changes {
				changes, err := server.JobChanges(cmd.Context(), p.job().ID)
				if err != nil {
					return err
				}
				printChanges(cmd.OutOrStdout(), changes)
				printUnreported(cmd.OutOrStdout(), p.job())
			}
			if with.reads {
				return printReads(cmd, server, p.job())
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&with.path, "path", false, "also show the chain of runs that determined how long the job took")
	cmd.Flags().BoolVar(&with.reads, "reads", false, "also show what every run read and published")
	cmd.Flags().BoolVar(&with.changes, "changes", false, "also show changes and failures, each once for all its nodes (reads at most 1,000 reports)")
	return cmd
}

// jobParts says which optional parts of a job are shown.
type jobParts struct{ reads, changes, path bool }

func jobArg(args []string) tutti.JobID {
	if len(args) == 0 {
		return ""
	}
	return tutti.JobID(args[0])
}

// otherCodes returns the codes of a job besides the one of the fleet's environment.
func otherCodes(j *engine.Job) string {
	var out []string
	for _, environment := range slices.Sorted(maps.Keys(j.Codes)) {
		out = append(out, fmt.Sprintf("%s %s%s", environment, shortCode(j.Codes[environment]), inBrackets(j.Commits[environment])))
	}
	return strings.Join(out, ", ")
}

// inBrackets returns the commit of some code in brackets.
func inBrackets(commit string) string {
	if commit == "" {
		return ""
	}
	return " (" + tutti.InLine(commit) + ")"
}

func printJob(w io.Writer, j *engine.Job, now time.Time) {
	printLine(w, "job      %s\nplan     %s\nmode     %s\ncode     %s\nby       %s\nbegan    %s\n",
		j.ID, j.Plan.Name, j.Mode, codeName(string(j.Code))+inBrackets(j.Commits[j.Env]), because(j.By, j.Cause), j.StartedAt.Local().Format(time.DateTime))
	if len(j.Codes) > 0 {
		printLine(w, "others   %s\n", otherCodes(j))
	}
	printLeases(w, j)
	said := saidFailures{}
	for _, st := range j.Steps {
		printLine(w, "\n%s  %s", st.Name, st.State)
		if !st.EndedAt.IsZero() {
			printLine(w, " after %s", short(st.EndedAt.Sub(st.StartedAt)))
		}
		if waits := viewOf(st.Step).waits(st.Step); waits != "" {
			printLine(w, "  waits for %s", waits)
		}
		if note := kindNote(st.Step); note != "" {
			printLine(w, "  %s", note)
		}
		if st.Message != "" {
			printLine(w, "  (%s)", st.Message)
		}
		fmt.Fprintln(w)
		for _, n := range st.Nodes {
			for _, r := range n.Runs {
				printLine(w, "  %s  %s  %s\n", n.Node, r.Run, runState(r))
				if r.Result != nil {
					for _, d := range said.details(r) {
						printLine(w, "      %s\n", d)
					}
				}
			}
		}
	}
	printSummary(w, j, now)
}

func runState(r *engine.Run) string {
	switch {
	case !r.Ended() && r.ClaimedAt.IsZero():
		return "wanted"
	case !r.Ended():
		return "running"
	case r.Result != nil && r.Result.Stopped:
		return "stopped at its gate: " + tutti.OneLine(r.GateWhy)
	}
	return ending(r)
}

// eachRecord calls f for every run of the job that has a record.
func eachRecord(cmd *cobra.Command, server api.Jobs, j *engine.Job, f func(r *engine.Run, rec tutti.Record) error) error {
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			for _, r := range n.Runs {
				if r.Result == nil || r.Result.Record == "" {
					continue
				}
				rec, err := server.RunRecord(cmd.Context(), r.Run)
				if err != nil {
					return err
				}
				if err := f(r, rec); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func printReads(cmd *cobra.Command, server api.Jobs, j *engine.Job) error {
	return eachRecord(cmd, server, j, func(r *engine.Run, rec tutti.Record) error {
		printRecord(cmd.OutOrStdout(), r, rec)
		return nil
	})
}

func printRecord(w io.Writer, r *engine.Run, rec tutti.Record) {
	in := rec.Inputs
	printLine(w, "\n%s  %s  run %s\n  puppet %s, facts %.19s, catalog %.19s\n", r.Step, r.Node, r.Run, orDash(tutti.InLine(in.Puppet)), orDash(tutti.InLine(string(in.Facts))), orDash(tutti.InLine(string(in.Catalog))))
	for _, read := range rec.Reads {
		printRead(w, read, "")
	}
	absent := 0
	for _, k := range rec.Keys {
		if !k.Found {
			absent++
		}
	}
	printRest(w, len(rec.Keys), absent, rec)
}

// printRead prints a question, the digest of its answer, and a note.
func printRead(w io.Writer, read tutti.Read, note string) {
	answer := "absent"
	if read.Found {
		answer = fmt.Sprintf("%.19s", tutti.InLine(string(read.Digest)))
	}
	printLine(w, "  read       %s  %s%s%s\n", question(read.Query), answer, place(read.At), note)
}

// printRest prints the parts of a record that are not reads: hiera keys, exports and
// values.
func printRest(w io.Writer, keys, absent int, rec tutti.Record) {
	printLine(w, "  hiera      %s looked up, %d of them absent in Tutti\n", count(keys, "key"), absent)
	for _, e := range rec.Exports {
		printLine(w, "  exported   %s\n", tutti.InLine(e))
	}
	for _, key := range sortedKeys(rec.Published) {
		printLine(w, "  published  %s  %.19s\n", tutti.InLine(key), tutti.InLine(string(rec.Published[key])))
	}
}

func question(q tutti.Query) string {
	text := q.String()
	if q.Kind != tutti.QueryCollect && !q.Own() {
		text = fmt.Sprintf("%s %s", q.Kind, q.Key)
	}
	return oneLine(text, maxLine)
}

// At most maxLine bytes of a text from a node, an operator or a server are shown.
const maxLine = 4 << 10

func place(p tutti.Place) string {
	if p.File == "" {
		return ""
	}
	return at(p.File, p.Line, 0)
}

func at(file string, line, column int) string {
	return "  at " + tutti.FileLine(oneLine(tutti.InEnvironment(file), maxLine), line, column)
}

// jobJSON is a job in the form for programs.
type jobJSON struct {
	Summary summaryLine    `json:"summary"`
	Leases  *engine.Leases `json:"exclusive,omitempty"`
	Runs    []*engine.Run  `json:"runs"`
	Records []tutti.Record `json:"records,omitempty"`

	Path    []engine.PathPart `json:"path,omitempty"`
	Changes *api.JobChanges   `json:"changes,omitempty"`
}

func (o *options) printJobJSON(cmd *cobra.Command, server Server, j *engine.Job, with jobParts) error {
	out := jobJSON{Summary: summarize(j, time.Now()), Leases: j.Leases}
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			out.Runs = append(out.Runs, n.Runs...)
		}
	}
	if with.path {
		out.Path = j.Path()
	}
	if with.changes {
		changes, err := server.JobChanges(cmd.Context(), j.ID)
		if err != nil {
			return err
		}
		out.Changes = &changes
	}
	if with.reads {
		err := eachRecord(cmd, server, j, func(_ *engine.Run, rec tutti.Record) error {
			out.Records = append(out.Records, rec)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return printJSON(cmd.OutOrStdout(), out)
}

func newJobWatchCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "watch [JOB]",
		Short:   "Watch a job until its end (default: the latest job)",
		Example: "  tutti job watch",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			return o.watch(cmd, server, jobArg(args))
		},
	}
}

func newJobCancelCommand(o *options) *cobra.Command {
	var in api.CancelJob
	cmd := &cobra.Command{
		Use:     "cancel JOB",
		Short:   "Cancel a job: start nothing more; current runs finish",
		Example: "  tutti job cancel JOB --reason 'wrong group'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			if err := o.confirm(cmd, "cancel "+args[0]); err != nil {
				return err
			}
			in.Job = tutti.JobID(args[0])
			if err := server.CancelJob(cmd.Context(), in); err != nil {
				return err
			}
			text := fmt.Sprintf("Job %s is cancelled: no more runs begin, and current runs finish.\n", in.Job)
			if in.Now {
				text = fmt.Sprintf("Job %s is cancelled: no more runs begin, and its Puppet runs are interrupted.\n", in.Job)
			}
			return o.done(cmd, text, map[string]any{"job": in.Job, "now": in.Now})
		},
	}
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the log")
	cmd.Flags().BoolVar(&in.Now, "now", false, "also interrupt the current Puppet runs")
	o.addYes(cmd)
	return cmd
}
