package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// Lab contains the functions that the lab commands call. All functions work on the machine
// where the command runs. They need no server.
type Lab struct {
	// Up creates the lab of the file, and returns when all its hosts run.
	Up func(ctx context.Context, file string) (LabView, error)
	// Down removes the named lab. If the name is empty, there must be only one lab.
	Down func(ctx context.Context, name string) error
	// List returns the labs of this machine.
	List func(ctx context.Context) ([]LabView, error)
	// Exec replaces this process by a command on a host of the named lab. If the lab's name
	// is empty, there must be only one lab. Exec returns only on an error.
	Exec func(ctx context.Context, lab, host string, args []string) error
	// The hosts of the lab file need bases. Bases builds the missing bases, and returns
	// the directories of all bases.
	Bases func(ctx context.Context, file string) (dirs []string, err error)
	// Run runs a command in a temporary copy of a base.
	Run func(ctx context.Context, run LabRun) error
	// Faults are the functions that cause faults on hosts.
	Faults LabFaults
}

// LabView is the data about a lab that the commands print.
type LabView struct {
	Name   string        `json:"name"`
	Subnet string        `json:"subnet"`
	Outer  string        `json:"outer"` // address of this machine on the lab's network
	Hosts  []LabHostView `json:"hosts"`
}

// LabHostView is the data about a host of a lab that the commands print.
type LabHostView struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Running bool   `json:"running"`
	Network string `json:"network,omitempty"` // cut, slow, or both. Network is empty if there is no fault
}

// LabRun is a command that runs in a temporary copy of a base. The base is defined by a lab
// file, or by a release and packages.
type LabRun struct {
	File     string
	Release  string
	Packages []string
	Binds    []LabBind
	Dir      string
	Args     []string
}

// LabBind makes a file or directory of this machine visible in the copy, at another path.
type LabBind struct {
	Source, Destination string
	ReadOnly            bool
}

func newLabCommand(o *options) *cobra.Command {
	l := o.deps.Lab
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Make real hosts on this machine, to try and test fleets",
		Long: `A lab is a set of hosts on this machine. Each host boots Debian's own systemd and has
its own network. A lab needs root on Linux.`,
	}
	group(cmd, "Hosts", newLabUpCommand(l), newLabDownCommand(l), newLabListCommand(l), newLabExecCommand(l))
	group(cmd, "Faults", append(newLabFaultCommands(l.Faults), newLabChaosCommand(o))...)
	group(cmd, "Bases", newLabBaseCommand(l), newLabRunCommand(l))
	return cmd
}

func newLabUpCommand(l Lab) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "up FILE",
		Short: "Boot the hosts of a lab file and wait until they run",
		Long: `Boots the hosts of a lab file and waits until they run. The first time,
the command also builds the base, which takes a minute or more. After that, booting four
hosts takes seconds.`,
		Example: "  tutti lab up lab.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			view, err := l.Up(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return writeLabs(cmd.OutOrStdout(), []LabView{view}, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newLabDownCommand(l Lab) *cobra.Command {
	return &cobra.Command{
		Use:     "down [NAME]",
		Short:   "Remove a lab and all it created, even if creating it was interrupted",
		Example: "  tutti lab down swift",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return l.Down(cmd.Context(), name)
		},
	}
}

func newLabListCommand(l Lab) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List labs and their hosts",
		Example: "  tutti lab list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			views, err := l.List(cmd.Context())
			if err != nil {
				return err
			}
			return writeLabs(cmd.OutOrStdout(), views, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// writeLabs prints one line for each host, or one JSON document.
func writeLabs(w io.Writer, views []LabView, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(views)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LAB\tHOST\tADDRESS\tSTATE")
	for _, v := range views {
		for _, h := range v.Hosts {
			state := "down"
			if h.Running {
				state = "running"
			}
			if h.Network != "" {
				state += ", " + h.Network
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.Name, h.Name, h.Address, state)
		}
	}
	return table.Flush()
}

func newLabExecCommand(l Lab) *cobra.Command {
	var lab string
	cmd := &cobra.Command{
		Use:   "exec [--lab NAME] HOST -- COMMAND [ARG...]",
		Short: "Run a command on a host, as root",
		Long: `Runs a command on a host, as root. The command gets Tutti's standard input
and standard output. Tutti ends with the command's exit code.`,
		Example: "  tutti lab exec storage-01 -- systemctl status",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.Exec(cmd.Context(), lab, args[0], args[1:])
		},
	}
	cmd.Flags().SetInterspersed(true)
	labFlag(cmd, &lab)
	return cmd
}

func newLabBaseCommand(l Lab) *cobra.Command {
	return &cobra.Command{
		Use:     "base FILE",
		Short:   "Build the bases of a lab file's hosts, and print their directories",
		Long:    `A base that is in the cache is not built again.`,
		Example: "  tutti lab base lab.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, err := l.Bases(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, dir := range dirs {
				fmt.Fprintln(cmd.OutOrStdout(), dir)
			}
			return nil
		},
	}
}

func newLabRunCommand(l Lab) *cobra.Command {
	var run LabRun
	var binds []string
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a temporary copy of a base",
		Long: `Runs a command in a temporary copy of a base, on this machine's network.
At the end, files that the command wrote outside of its binds are deleted. All processes
that the command started end with it. Tutti ends with the command's exit code.`,
		Example: `  tutti lab run --package puppet-agent --bind .:/code --dir /code -- puppet parser validate manifests`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, b := range binds {
				bind, err := parseBind(b)
				if err != nil {
					return err
				}
				run.Binds = append(run.Binds, bind)
			}
			run.Args = args
			return l.Run(cmd.Context(), run)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&run.File, "file", "", "take release and packages from this lab file")
	flags.StringVar(&run.Release, "release", "", "Debian release: trixie (Puppet 8, the default) or bookworm (Puppet 7)")
	flags.StringArrayVar(&run.Packages, "package", nil, "Debian package to bake in (repeatable)")
	flags.StringArrayVar(&binds, "bind", nil, "SOURCE:DESTINATION[:ro] of a file or directory (repeatable)")
	flags.StringVar(&run.Dir, "dir", "/", "directory in which the command starts")
	cmd.MarkFlagsMutuallyExclusive("file", "release")
	cmd.MarkFlagsMutuallyExclusive("file", "package")
	return cmd
}

func parseBind(text string) (LabBind, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" {
		return LabBind{}, tutti.Errorf(tutti.CodeInvalid, "--bind %q: want SOURCE:DESTINATION or SOURCE:DESTINATION:ro", text)
	}
	source, err := filepath.Abs(parts[0])
	if err != nil {
		return LabBind{}, tutti.Wrap(tutti.CodeInvalid, err, "--bind %q", text)
	}
	return LabBind{Source: source, Destination: parts[1], ReadOnly: len(parts) == 3}, nil
}
