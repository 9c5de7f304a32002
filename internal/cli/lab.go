package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// Lab is what the lab commands call. All of it works on the machine where the
// command runs; no server is involved.
type Lab struct {
	// Base builds the base of the lab file if needed and returns its directory.
	Base func(ctx context.Context, file string) (dir string, err error)
	// Run runs a command in a throwaway copy of a base.
	Run func(ctx context.Context, run LabRun) error
}

// LabRun is a command in a throwaway copy of a base, which a lab file or
// release and packages define.
type LabRun struct {
	File     string
	Release  string
	Packages []string
	Binds    []LabBind
	Dir      string
	Args     []string
}

// LabBind is a path of the outer machine that is visible elsewhere.
type LabBind struct {
	Source, Destination string
	ReadOnly            bool
}

func newLabCommand(l Lab) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Make real hosts on this machine, to try and test fleets",
		Long: `A lab is a set of hosts on this machine: each boots Debian's own systemd and has
its own network. It needs root on Linux.`,
	}
	cmd.AddCommand(newLabBaseCommand(l), newLabRunCommand(l))
	return cmd
}

func newLabBaseCommand(l Lab) *cobra.Command {
	return &cobra.Command{
		Use:   "base FILE",
		Short: "Build the base of a lab file unless it is cached, and print its directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := l.Base(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), dir)
			return nil
		},
	}
}

func newLabRunCommand(l Lab) *cobra.Command {
	var run LabRun
	var binds []string
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a throwaway copy of a base",
		Long: `Run a command in a throwaway copy of a base, on this machine's network. What it
writes outside of its binds is gone at the end, and nothing that it starts
outlives it. The exit code is the command's own.`,
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
