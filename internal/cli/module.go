package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// ModuleInstalled describes an installed copy of the Puppet module.
type ModuleInstalled struct {
	Module  string // its directory
	Version string // version of Tutti
	Digest  string // digest of its files
}

// InstallModule writes the Puppet module of this release into a directory for
// modules.
type InstallModule func(modules string) (ModuleInstalled, error)

func newModuleCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "module", Short: "Install the Puppet module tutti for CI and IDEs"}
	cmd.AddCommand(newModuleInstallCommand(o))
	return cmd
}

func newModuleInstallCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "Install the Puppet module tutti into DIR/tutti, for CI and IDEs",
		Long: `Writes the Puppet module tutti of this release to DIR/tutti. Code that
uses its types and functions then compiles outside of Tutti: in CI, in an IDE, and with
puppet apply. There the module publishes nothing, and its functions return their
defaults. The command replaces a module that another release has written. The command
changes nothing else.

Nodes do not need this copy, because their agents have the module. Do not push this copy
with the code, and keep it off the nodes' modulepath. If a node has two modules tutti,
its runs are refused.`,
		Example: "  tutti module install spec/fixtures/modules",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, err := o.deps.InstallModule(args[0])
			if err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("Wrote %s: the module of Tutti %s (%.12s).\n", done.Module, done.Version, done.Digest),
				map[string]any{"module": done.Module, "version": done.Version, "digest": done.Digest})
		},
	}
}
