package cli

import "github.com/spf13/cobra"

// group adds commands to parent, under a separate heading in parent's help.
func group(parent *cobra.Command, heading string, commands ...*cobra.Command) {
	parent.AddGroup(&cobra.Group{ID: heading, Title: heading + ":"})
	for _, cmd := range commands {
		cmd.GroupID = heading
	}
	parent.AddCommand(commands...)
}
