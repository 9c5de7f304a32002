package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// LabFaults are functions that cause faults on a host of the named lab. If the
// lab's name is empty, there must be only one lab. If the host is already in the
// wanted state, the functions return no error.
type LabFaults struct {
	Cut, Heal, Kill, Start func(ctx context.Context, lab, host string) error
	// Slow delays packets. Slow also drops a share of the packets: `loss` is from 0 to
	// less than 1. If `delay` and `loss` are zero, the link becomes normal.
	Slow func(ctx context.Context, lab, host string, delay time.Duration, loss float64) error
	// Relay is the process that makes a link slow.
	Relay func(ctx context.Context, args []string) error
}

func newLabFaultCommands(f LabFaults) []*cobra.Command {
	return []*cobra.Command{
		newLabFaultCommand("cut", "Disconnect a host from all others; the host keeps its link", f.Cut),
		newLabFaultCommand("heal", "Reconnect a host to the others, with a link that is not slow", f.Heal),
		newLabFaultCommand("kill", "Power a host off: all its processes end at once, its disk stays", f.Kill),
		newLabFaultCommand("start", "Boot a host that was killed, with its disk, name and address", f.Start),
		newLabSlowCommand(f), newLabRelayCommand(f),
	}
}

func newLabFaultCommand(verb, short string, do func(ctx context.Context, lab, host string) error) *cobra.Command {
	var lab string
	cmd := &cobra.Command{
		Use:     verb + " [--lab NAME] HOST",
		Short:   short,
		Example: "  tutti lab " + verb + " storage-01",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return do(cmd.Context(), lab, args[0]) },
	}
	labFlag(cmd, &lab)
	return cmd
}

func labFlag(cmd *cobra.Command, lab *string) {
	cmd.Flags().StringVar(lab, "lab", "", "the host's lab (default: the only one)")
}

func newLabSlowCommand(f LabFaults) *cobra.Command {
	var lab, loss string
	var delay time.Duration
	var off bool
	cmd := &cobra.Command{
		Use:   "slow [--lab NAME] HOST (--delay TIME | --loss PERCENT | --off)...",
		Short: "Delay a host's packets and lose some of them",
		Long: `Delays a host's packets and loses some of them, in each direction. A round trip takes
twice the delay. The command replaces an earlier delay and loss. --off, or
"tutti lab heal", ends both.`,
		Example: "  tutti lab slow storage-01 --delay 100ms --loss 5%",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			part, err := parsePercent(loss)
			if err != nil {
				return err
			}
			if !off && delay == 0 && part == 0 {
				return tutti.Errorf(tutti.CodeInvalid, "how slow? Give --delay, --loss, or --off")
			}
			return f.Slow(cmd.Context(), lab, args[0], delay, part)
		},
	}
	labFlag(cmd, &lab)
	flags := cmd.Flags()
	flags.DurationVar(&delay, "delay", 0, "delay of each packet, like 100ms")
	flags.StringVar(&loss, "loss", "0%", "share of the packets that is lost, like 5%")
	flags.BoolVar(&off, "off", false, "end the delay and the loss")
	cmd.MarkFlagsMutuallyExclusive("off", "delay")
	cmd.MarkFlagsMutuallyExclusive("off", "loss")
	return cmd
}

// parsePercent converts `5%` to 0.05.
func parsePercent(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent >= 0 && percent < 100) {
		return 0, tutti.Errorf(tutti.CodeInvalid, "--loss %q: want a percentage from 0%% to less than 100%%, like 5%%", text)
	}
	return percent / 100, nil
}

func newLabRelayCommand(f LabFaults) *cobra.Command {
	return &cobra.Command{
		Use: "relay PORT TAP DELAY LOSS", Short: "Relay the packets of a slow link", Hidden: true, Args: cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error { return f.Relay(cmd.Context(), args) },
	}
}
