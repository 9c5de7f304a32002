package cli

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// Chaos says what befalls a fleet on lab hosts.
type Chaos struct {
	Lab  string // empty: the only one
	Plan tutti.PlanName
	Seed uint64
	For  time.Duration
	// Turns: when the faults are over, machines are replaced, cloned and set back, and the server is restored.
	Turns bool
}

func newLabChaosCommand(o *options) *cobra.Command {
	var in Chaos
	cmd := &cobra.Command{
		Use:   "chaos [flags] PLAN",
		Short: "Execute a plan again and again while faults befall the lab's hosts, and judge",
		Long: `Execute a plan again and again while faults befall the lab's hosts: they are cut
off, slowed down or lose their power; agents and the server are killed or
stopped. The faults follow from a seed, which is printed first: the same seed
on the same hosts is the same schedule. In the end all is healed, the plan runs
once more undisturbed, and what the log and the nodes have is compared: every
job has its verdict, nothing started twice or without a claim, no node ran
two Puppets at once, no result is missing, nobody was given up who was there, and
everybody is back. Then every node that is called good makes a noop run, which
must find nothing.

With --turns, one node after that is set back to an earlier state, one is replaced
by another machine, the server is restored from a backup, and if a host of the lab
has not joined, a node is cloned to it. After each the plan runs again, and good
nodes are looked at before and after it.

What is not as it must be is printed, and the exit code is 1.`,
		Example: "  tutti lab chaos deploy --lab swift --seed 7 --for 2m",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Plan = tutti.PlanName(args[0])
			if !cmd.Flags().Changed("seed") {
				in.Seed = rand.Uint64N(1_000_000) //nolint:gosec // which faults come is no secret
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
				fmt.Fprintf(out, "seed %d: %d things that must not be; again: %s --seed %[1]d --for %[4]s %[5]s\n", in.Seed, len(found), cmd.CommandPath(), in.For, in.Plan)
				return CommandExit(ExitFailed)
			}
			fmt.Fprintf(out, "seed %d: all is as it must be\n", in.Seed)
			return nil
		},
	}
	labFlag(cmd, &in.Lab)
	cmd.Flags().Uint64Var(&in.Seed, "seed", 0, "of the schedule (default: some number, which is printed)")
	cmd.Flags().BoolVar(&in.Turns, "turns", false, "then replace, clone and set back nodes, and restore the server")
	cmd.Flags().DurationVar(&in.For, "for", 2*time.Minute, "how long faults come and go")
	return cmd
}
