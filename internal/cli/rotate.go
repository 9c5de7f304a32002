package cli

import "github.com/spf13/cobra"

func newRotateCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "rotate", Short: "Make new keys for a fleet that runs"}
	cmd.AddCommand(newRotateCACommand(o))
	return cmd
}
