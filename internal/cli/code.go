package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

func newCodeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "code", Short: "Bring Puppet code and the fleet file to the server"}
	cmd.AddCommand(newCodePushCommand(o))
	return cmd
}

func newCodePushCommand(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Sign the environment and send it with the fleet file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			pushed, err := o.push(cmd, server, file)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), pushed)
			}
			if pushed.Code == "" {
				fmt.Fprintln(cmd.OutOrStdout(), "The fleet file is there; it has no environment: the code is the Puppet Server's.")
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Environment %s is %s: %d files, %d bytes.\n", pushed.Environment, pushed.Code, pushed.Files, pushed.Bytes)
			return nil
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", defaultFleetFile, "the fleet file")
}

// readFleet reads and checks a fleet file.
func readFleet(file string) (tutti.Fleet, []byte, error) {
	source, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return tutti.Fleet{}, nil, tutti.Errorf(tutti.CodeInvalid, "no fleet file %s here; go to its directory, or name it: --file FILE", file)
	}
	if err != nil {
		return tutti.Fleet{}, nil, tutti.Wrap(tutti.CodeInvalid, err, "fleet file")
	}
	f, err := fleet.Parse(file, source)
	return f, source, err
}

// push sends code and fleet file. The fleet file comes last: a plan never
// meets code that is not there.
func (o *options) push(cmd *cobra.Command, server Server, file string) (tutti.CodePushed, error) {
	f, source, err := readFleet(file)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	if f.Environment.Name == "" { // its Puppet Server has the code
		_, err = server.SetFleet(cmd.Context(), tutti.FleetSource{File: file, Source: source})
		return tutti.CodePushed{}, err
	}
	dir := f.Environment.Path
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	pushed, err := o.deps.Push(cmd.Context(), server, o.conn, dir, f.Environment.Name)
	if err != nil {
		return pushed, err
	}
	_, err = server.SetFleet(cmd.Context(), tutti.FleetSource{File: file, Source: source})
	return pushed, err
}
