package cli

import "github.com/spf13/cobra"

func newRotateCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "rotate", Short: "Replace keys of the fleet while it runs"}
	cmd.AddCommand(newRotateCACommand(o))
	return cmd
}
