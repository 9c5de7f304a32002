package cli

import "github.com/spf13/cobra"

// The function `group` adds commands to the command `parent`. The help of `parent`
// lists them under the given heading.
func group(parent *cobra.Command, heading string, commands ...*cobra.Command) {
	parent.AddGroup(&cobra.Group{ID: heading, Title: heading + ":"})
	for _, cmd := range commands {
		cmd.GroupID = heading
	}
	parent.AddCommand(commands...)
}
