package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// ReportDestination says what has happened for a destination of reports.
type ReportDestination struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"`
	Address string    `json:"address"`
	Sent    int       `json:"sent"`
	Waiting int       `json:"waiting"`
	Dropped int       `json:"dropped"` // retention removed them before they were sent
	SentAt  time.Time `json:"sent_at,omitzero"`
	Error   string    `json:"error,omitempty"` // the reason why reports wait
	Since   time.Time `json:"since,omitzero"`  // when the first request failed after the last good one
	// Parked are the reports that the destination refused.
	Parked []ParkedReport `json:"parked,omitempty"`
}

// ParkedReport is a report that a destination refused.
type ParkedReport struct {
	Run    tutti.RunID    `json:"run"`
	Node   tutti.NodeName `json:"node"`
	Reason string         `json:"reason"`
}

// CheckedDestination is the result of a connection to a destination.
type CheckedDestination struct {
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// ReportsOut handles the destinations of reports. It reads and writes the server's directory, and asks no server.
type ReportsOut interface {
	List(dir string) ([]ReportDestination, error)
	Check(ctx context.Context, dir string) ([]CheckedDestination, error)
	Retry(dir, name string) (int, error)
}

func newServerReportsCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reports",
		Short: "Show where the server sends reports, and what waits there",
		Long: `The server sends the reports of runs to the destinations in the file reports.yaml
of its directory. These commands work in that directory, as root on the server's machine.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newReportsListCommand(o), newReportsCheckCommand(o), newReportsRetryCommand(o))
	return cmd
}

func newReportsListCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the destinations of reports, and what waits or was refused",
		Example: "  tutti server reports list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := o.deps.ReportsOut.List(dir)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), found)
			}
			if len(found) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "no destinations; name some in %s\n", filepath.Join(dir, "reports.yaml"))
				return nil
			}
			out, now := cmd.OutOrStdout(), time.Now()
			var rows [][]string
			for _, d := range found {
				rows = append(rows, []string{
					d.Name, d.Kind, fmt.Sprint(d.Sent), fmt.Sprint(d.Waiting), fmt.Sprint(len(d.Parked)), fmt.Sprint(d.Dropped), ago(d.SentAt, now), d.Address,
				})
			}
			if err := table(out, "NAME\tKIND\tSENT\tWAITING\tPARKED\tDROPPED\tLAST\tADDRESS", rows); err != nil {
				return err
			}
			for _, d := range found {
				if d.Error != "" {
					since := "gets no reports"
					if !d.Since.IsZero() {
						since = "waits since " + d.Since.UTC().Format(time.RFC3339)
					}
					fmt.Fprintf(out, "%s: %s: %s\n", d.Name, since, d.Error)
				}
				for _, p := range d.Parked {
					fmt.Fprintf(out, "%s: parked: run %s of %s: %s\n", d.Name, p.Run, p.Node, p.Reason)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "the server's data directory")
	return cmd
}

func newReportsCheckCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, and connect without sending a report",
		Long: `Reads reports.yaml with the keys and tokens that it names, and connects to each
destination. Use the command before you restart the server with a changed file.`,
		Example: "  tutti server reports check",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := o.deps.ReportsOut.Check(cmd.Context(), dir)
			if err != nil {
				return err
			}
			bad := 0
			for _, d := range found {
				if d.Error != "" {
					bad++
				}
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				var rows [][]string
				for _, d := range found {
					text := d.Text
					if d.Error != "" {
						text = "failed: " + d.Error
					}
					rows = append(rows, []string{d.Name, text})
				}
				err = table(cmd.OutOrStdout(), "NAME\tRESULT", rows)
			}
			if err == nil && bad > 0 {
				err = tutti.Errorf(tutti.CodeUnavailable, "%d of %d destinations cannot get reports", bad, len(found))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "the server's data directory")
	return cmd
}

func newReportsRetryCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "retry NAME",
		Short: "Send the refused reports of a destination to it again",
		Long: `A destination may refuse a report for good, for example because it does not know
the node. Mend the cause first. The server then sends these reports again within seconds, or
after its next start.`,
		Example: "  tutti server reports retry foreman",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.deps.ReportsOut.Retry(dir, args[0])
			if err != nil {
				return err
			}
			text := fmt.Sprintf("The server sends %d reports to %s again; see: tutti server reports list\n", n, args[0])
			if n == 0 {
				text = fmt.Sprintf("%s has refused no report.\n", args[0])
			}
			return o.done(cmd, text, map[string]any{"name": args[0], "reports": n})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "the server's data directory")
	return cmd
}
