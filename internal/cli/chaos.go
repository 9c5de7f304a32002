package cli

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// Chaos describes a test of a fleet on lab hosts with faults.
type Chaos struct {
	Lab  string // empty: the only lab
	Plan tutti.PlanName
	Seed uint64
	For  time.Duration
	// If Turns is set, the test has a second part, in which it replaces, clones and sets back machines, and
	// restores the server.
	Turns bool
}

func newLabChaosCommand(o *options) *cobra.Command {
	var in Chaos
	cmd := &cobra.Command{
		Use:   "chaos [flags] PLAN",
		Short: "Test a fleet: run a plan while the lab's hosts suffer faults",
		Long: `Runs a plan again and again while the lab's hosts suffer faults. Hosts are cut off,
slowed down or lose their power. Agents and the server are killed or stopped. The
faults follow from a seed, which the command prints first. The same seed on the same
hosts gives the same schedule.

In the end the command heals all hosts and runs the plan once more without faults.
Then it compares the log with the nodes:

  - Every job has a verdict, and no result is missing.
  - Nothing started twice or without a claim, and no node ran two Puppets at once.
  - The server gave up no node that was connected, and every node is back.
  - On every node that counts as good, a noop run finds nothing to change.

With --turns the command then changes machines. One node is set back to an earlier
state, and one is replaced by another machine. The server is restored from a backup. If
a host of the lab has not joined, a node is cloned to that host. The plan runs again
after each of these changes. The command checks the good nodes before and after the
plan.

If a check fails, the command prints what is wrong and ends with exit code 1.`,
		Example: "  tutti lab chaos deploy --lab swift --seed 7 --for 2m",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Plan = tutti.PlanName(args[0])
			if !cmd.Flags().Changed("seed") {
				in.Seed = rand.Uint64N(1_000_000) //nolint:gosec // the faults need not be secret
			}
			out := cmd.OutOrStdout()
			found, err := o.deps.Chaos(cmd.Context(), o.conn, in, func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) })
			if err != nil {
				return err
			}
			for _, line := range found {
				fmt.Fprintln(out, line)
			}
			if len(found) > 0 {
				fmt.Fprintf(out, "seed %d: %d checks failed; repeat with: %s --seed %[1]d --for %[4]s %[5]s\n", in.Seed, len(found), cmd.CommandPath(), in.For, in.Plan)
				return CommandExit(ExitFailed)
			}
			fmt.Fprintf(out, "seed %d: all checks passed\n", in.Seed)
			return nil
		},
	}
	labFlag(cmd, &in.Lab)
	cmd.Flags().Uint64Var(&in.Seed, "seed", 0, "seed of the schedule (default: a random number, which is printed)")
	cmd.Flags().BoolVar(&in.Turns, "turns", false, "afterwards replace, clone and set back nodes, and restore the server")
	cmd.Flags().DurationVar(&in.For, "for", 2*time.Minute, "how long hosts suffer faults")
	return cmd
}
