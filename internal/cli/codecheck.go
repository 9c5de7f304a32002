package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

func newCodeCheckCommand(o *options) *cobra.Command {
	var in pushFlags
	var modules []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the code before a push, with the Puppet of this machine",
		Long: `Checks the syntax of manifests, templates, functions, hiera data and metadata. The
command also reports modules that a metadata.json needs and that are not there, and
classes and resource types that nothing defines. It compiles nothing and sends nothing.

Errors make the command exit with 2. A warning may be meant: a module names a class of
another module that is not there. The command needs puppet-agent or openvox-agent on
this machine.`,
		Example: `  tutti code check
  tutti code check --path ../canary
  tutti code check --modules /usr/share/puppet/modules`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var dirs []string
			if in.path != "" {
				dirs = []string{in.path}
			} else {
				f, _, err := readFleet(in.file)
				if err != nil {
					return err
				}
				for _, e := range f.Declared() {
					if in.environment == "" || in.environment == e.Name {
						dirs = append(dirs, inDir(e.Path, filepath.Dir(in.file)))
					}
				}
				if len(dirs) == 0 {
					return tutti.Errorf(tutti.CodeInvalid, "%s names no directory of this code: name it with --path DIR", in.file)
				}
			}
			problems, errors := []tutti.CodeProblem{}, 0
			for _, dir := range dirs {
				found, err := o.deps.CheckCode(cmd.Context(), dir, modules)
				if err != nil {
					return err
				}
				for _, p := range found {
					p.File = filepath.Join(dir, p.File)
					problems = append(problems, p)
					if p.Level == tutti.ProblemError {
						errors++
					}
				}
			}
			if o.json {
				if err := printJSON(cmd.OutOrStdout(), map[string]any{"problems": problems, "errors": errors}); err != nil {
					return err
				}
			} else {
				printProblems(cmd.OutOrStdout(), problems)
			}
			if errors > 0 {
				return tutti.Errorf(tutti.CodeInvalid, "%s in the code", count(errors, "error"))
			}
			if !o.json {
				fmt.Fprintf(cmd.OutOrStdout(), "No errors, %s.\n", count(len(problems), "warning"))
			}
			return nil
		},
	}
	fileFlag(cmd, &in.file)
	cmd.Flags().StringVar(&in.environment, "environment", "", "check only this environment of the fleet file")
	cmd.Flags().StringVar(&in.path, "path", "", "check this directory")
	cmd.Flags().StringSliceVar(&modules, "modules", nil, "directories of modules that the nodes have besides the code")
	return cmd
}

func printProblems(w io.Writer, problems []tutti.CodeProblem) {
	for _, p := range problems {
		at := tutti.Plain(p.File, maxLine)
		if p.Line > 0 {
			at = tutti.FileLine(at, p.Line, 0)
		}
		printLine(w, "%s: %s: %s\n", at, p.Level, tutti.InLine(tutti.Plain(p.Message, maxLine)))
	}
}

// inDir returns a path of a fleet file in the directory `from`.
func inDir(path, from string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(from, path)
}
