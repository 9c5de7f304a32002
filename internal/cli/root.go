package cli

import "github.com/spf13/cobra"

// NewRoot returns the command tutti with all its subcommands.
func NewRoot(l Lab) *cobra.Command {
	root := &cobra.Command{
		Use:           "tutti",
		Short:         "Orchestrate Puppet and OpenVox fleets",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newLabCommand(l))
	return root
}
