package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// PuppetServerInstall names directories on the host of a Puppet Server.
type PuppetServerInstall struct {
	Dir string // the agent's state directory
	// a directory on the Puppet Server's modulepath. If Modules is empty, Tutti looks for a directory
	// in the default places
	Modules string
	User    string // the user that runs the Puppet Server
}

// PuppetServerInstalled describes the installed module.
type PuppetServerInstalled struct {
	Module string // its directory
	Socket string
	User   string
}

// InstallPuppetServer installs the module on a Puppet Server.
type InstallPuppetServer func(o PuppetServerInstall) (PuppetServerInstalled, error)

func newPuppetServerCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "puppet-server", Short: "Install Tutti's module on a Puppet Server"}
	cmd.AddCommand(newPuppetServerInstallCommand(o))
	return cmd
}

func newPuppetServerInstallCommand(o *options) *cobra.Command {
	var in PuppetServerInstall
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the module tutti on the Puppet Server of this host",
		Long: `Run this command on a Puppet Server that is a node. The command copies
the module tutti of this release to the modulepath that all environments share. The
command also lets the node's agent open a socket for the Puppet Server. The command
changes no file of the Puppet Server. It prints the settings that you have to make
there.

After an upgrade of Tutti, run the command again and reload the Puppet Server.`,
		Example: "  tutti puppet-server install",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := o.deps.InstallPuppetServer(in)
			if err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf(puppetServerNext, done.Module, done.Socket, done.User, done.Module), map[string]any{"module": done.Module, "socket": done.Socket, "user": done.User})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultAgentDir, "the agent's state directory")
	f.StringVar(&in.Modules, "modules", "", "a directory on the Puppet Server's basemodulepath (default: the directory of Debian's or of Puppet's own packages)")
	f.StringVar(&in.User, "user", "puppet", "the user of the Puppet Server")
	return cmd
}

const puppetServerNext = `Installed %s.
After a restart, the agent offers %s to the user %s. What is to be done:
  fleet file     grants: - {to: GROUP-OF-THIS-NODE, compile: true, dangerous: true}
  puppetserver.conf, ruby-load-path
                 add %s/lib
  puppet.conf    [server]
                 storeconfigs = true
                 storeconfigs_backend = tutti
  hiera.yaml     (the global one) as the first level: {name: Tutti, lookup_key: tutti::hiera}
Then: systemctl restart tutti-agent puppetserver
`
