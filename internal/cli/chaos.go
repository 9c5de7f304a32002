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
everybody is back. What is not so is printed, and the exit code is 1.`,
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
	cmd.Flags().DurationVar(&in.For, "for", 2*time.Minute, "how long faults come and go")
	return cmd
}
