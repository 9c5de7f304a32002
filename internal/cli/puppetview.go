package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func showStatus(cmd *cobra.Command, answers []api.NodeAnswer) error {
	var rows [][]string
	for _, a := range answers {
		if a.Verdict != tutti.RemoteOK {
			continue
		}
		s := a.Status
		rows = append(rows, []string{
			string(a.Node), s.Status, sinceSeconds(s.LastRun, s.SinceLastRun), lastKnown(a), orDash(oneLine(s.DisableMessage, maxValue)),
		})
	}
	return tableIfAny(cmd, "NODE\tSTATUS\tPUPPET RAN\tLAST KNOWN RUN\tDISABLED BECAUSE", rows)
}

// lastKnown returns the outcome of a node's last run, as the server knows it.
func lastKnown(a api.NodeAnswer) string {
	text := orDash(outcome(a.Outcome, a.Reason))
	if a.Foreign {
		text += " (" + foreignWord(a.Local) + ")"
	}
	return text
}

func sinceSeconds(last, since int64) string {
	if last == 0 {
		return "never"
	}
	return short(time.Duration(since)*time.Second) + " ago"
}

func showCount(cmd *cobra.Command, answers []api.NodeAnswer) error {
	var nodes, enabled, disabled, applying, idling, stopped, daemons, other int
	for _, a := range answers {
		if nodes++; a.Verdict != tutti.RemoteOK {
			other++
			continue
		}
		for is, n := range map[*int]bool{
			&enabled: a.Status.Enabled, &disabled: !a.Status.Enabled, &applying: a.Status.Applying, &idling: a.Status.Idling,
			&stopped: !a.Status.Applying && !a.Status.DaemonPresent, &daemons: a.Status.DaemonPresent,
		} {
			if n {
				*is++
			}
		}
	}
	var rows [][]string
	for _, r := range []struct {
		what  string
		count int
	}{
		{"asked", nodes}, {"enabled", enabled}, {"disabled", disabled}, {"applying a catalog", applying}, {"stopped", stopped},
		{"with a daemon", daemons}, {"with a daemon that is idle", idling}, {"without an answer", other},
	} {
		rows = append(rows, []string{r.what, strconv.Itoa(r.count)})
	}
	return table(cmd.OutOrStdout(), "NODES\tCOUNT", rows)
}

func showLastRun(cmd *cobra.Command, answers []api.NodeAnswer) error {
	var rows [][]string
	for _, a := range answers {
		if a.Verdict != tutti.RemoteOK {
			continue
		}
		s := a.Summary
		counts := []string{"-", "-", "-", "-", "-"}
		if !s.Failed {
			counts = counts[:0]
			for _, n := range []int64{s.TotalResources, s.ChangedResources, s.CorrectedResources, s.OutOfSyncResources, s.FailedResources} {
				counts = append(counts, strconv.FormatInt(n, 10))
			}
		}
		ended := "applied"
		if s.Failed {
			ended = "failed before it applied"
		}
		row := append([]string{string(a.Node), ended, sinceSeconds(s.LastRun, s.SinceLastRun)}, counts...)
		rows = append(rows, append(row, fmt.Sprintf("%.1fs", s.TotalTime), lastKnown(a)))
	}
	return tableIfAny(cmd, "NODE\tPUPPET'S LAST RUN\tENDED\tRESOURCES\tCHANGED\tCORRECTED\tOUT OF SYNC\tFAILED\tTOOK\tLAST KNOWN RUN", rows)
}

// showSummary prints a comparison of the nodes' last runs.
func showSummary(cmd *cobra.Command, answers []api.NodeAnswer) error {
	failed, columns := 0, []struct {
		what   string
		of     func(*tutti.RunSummary) float64
		values []float64
	}{
		{what: "resources", of: func(s *tutti.RunSummary) float64 { return float64(s.TotalResources) }},
		{what: "out of sync", of: func(s *tutti.RunSummary) float64 { return float64(s.OutOfSyncResources) }},
		{what: "failed", of: func(s *tutti.RunSummary) float64 { return float64(s.FailedResources) }},
		{what: "changed", of: func(s *tutti.RunSummary) float64 { return float64(s.ChangedResources) }},
		{what: "corrected", of: func(s *tutti.RunSummary) float64 { return float64(s.CorrectedResources) }},
		{what: "config retrieval (s)", of: func(s *tutti.RunSummary) float64 { return s.ConfigRetrieval }},
		{what: "total time (s)", of: func(s *tutti.RunSummary) float64 { return s.TotalTime }},
		{what: "since last run (s)", of: func(s *tutti.RunSummary) float64 { return float64(s.SinceLastRun) }},
	}
	for _, a := range answers {
		switch {
		case a.Verdict != tutti.RemoteOK:
		case a.Summary.Failed:
			failed++
		default:
			for i := range columns {
				columns[i].values = append(columns[i].values, columns[i].of(a.Summary))
			}
		}
	}
	var rows [][]string
	for _, c := range columns {
		if len(c.values) == 0 {
			continue
		}
		slices.SortFunc(c.values, cmp.Compare[float64])
		above := 0
		for _, v := range c.values {
			if v > 0 {
				above++
			}
		}
		at := func(q float64) string {
			return strconv.FormatFloat(c.values[int(q*float64(len(c.values)-1))], 'f', -1, 64)
		}
		rows = append(rows, []string{c.what, at(0), at(0.5), at(0.95), at(1), strconv.Itoa(above)})
	}
	if failed > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%d of the last runs failed before they applied a catalog, and have no counts.\n", failed)
	}
	return tableIfAny(cmd, "LAST RUNS\tLEAST\tMEDIAN\t95%\tMOST\tNODES ABOVE 0", rows)
}

func showResource(cmd *cobra.Command, answers []api.NodeAnswer) error {
	for _, a := range answers {
		if a.Verdict == tutti.RemoteOK {
			fmt.Fprintf(cmd.OutOrStdout(), "%s:\n", a.Node)
			if err := printJSON(cmd.OutOrStdout(), a.Resource); err != nil {
				return err
			}
		}
	}
	return nil
}
