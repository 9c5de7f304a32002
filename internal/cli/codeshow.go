package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newCodeShowCommand(o *options) *cobra.Command {
	var in api.CodeQuery
	cmd := &cobra.Command{
		Use:   "show [PATH]",
		Short: "Show which code nodes run with, and what has changed in it",
		Long: `Shows the code that was pushed last: who pushed it, when, whether it is
held, and how many nodes have it. The command lists the files that differ from the
previous code. While code is held, the previous code is the code that nodes use when they
run by themselves. Otherwise the previous code is the code that was pushed before.

With PATH the command prints that file, or lists the files of that directory. "tutti
code show ." lists all files. With --previous, PATH is a path in the previous code.`,
		Example: `  tutti code show
  tutti code show modules/ntp/manifests/init.pp
  tutti code show --previous .`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Path = strings.Join(args, "")
			if in.Before && in.Path == "" {
				return tutti.Errorf(tutti.CodeInvalid, "--previous needs a path in the code; for all files: tutti code show --previous .")
			}
			if in.Code != "" && (in.Path == "" || in.Before) {
				return tutti.Errorf(tutti.CodeInvalid, "--code needs a path, and cannot be together with --previous; for all files: tutti code show --code %s .", in.Code)
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			if in.Path != "" {
				return o.printFile(cmd, server, in)
			}
			shown, err := server.ShowCode(cmd.Context(), in)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), shown)
			}
			printCode(cmd.OutOrStdout(), shown, time.Now())
			return nil
		},
	}
	cmd.Flags().StringVar(&in.Environment, "environment", "", "the environment (default: the fleet file's)")
	cmd.Flags().StringVar(&in.Code, "code", "", "PATH is a path in this code, see: tutti code list")
	cmd.Flags().BoolVar(&in.Before, "previous", false, "PATH is a path in the previous code")
	return cmd
}

// printFile prints a file of the code unchanged. For a directory, printFile
// prints the list of files.
func (o *options) printFile(cmd *cobra.Command, server Server, in api.CodeQuery) error {
	read, err := server.ReadCode(cmd.Context(), in)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case o.json:
		return printJSON(w, read)
	case read.File.Link != "":
		_, err = fmt.Fprintf(w, "%s\n", fileText(read.Path, read.File))
	case len(read.Below) > 0:
		for _, name := range slices.Sorted(maps.Keys(read.Below)) {
			if _, err = fmt.Fprintf(w, "%s\n", fileText(name, read.Below[name])); err != nil {
				break
			}
		}
	default:
		_, err = w.Write(read.Content)
	}
	return err
}

// fileText returns the line about a file in a list.
func fileText(name string, f tutti.CodeFile) string {
	text := tutti.Plain(name, maxLine)
	switch {
	case f.Link != "":
		text += " -> " + tutti.Plain(f.Link, maxLine)
	case f.Exec:
		text += "  (executable)"
	}
	return text
}

func printCode(w io.Writer, c api.CodeShown, now time.Time) {
	printLine(w, "environment  %s\n", c.Environment)
	printLine(w, "code         %s\n", codeVersionText(c.Pushed, now))
	printLine(w, "signed       %s\n", signedText(c.Signed))
	printLine(w, "fleet file   %s\n", signedText(c.Plans))
	printLine(w, "runs         %s\n", goesText(c))
	printLine(w, "nodes        %s\n", havingText(c))
	if c.Before == nil {
		fmt.Fprintln(w, "before       the log has no earlier code")
		return
	}
	printLine(w, "before       %s\n", codeVersionText(*c.Before, now))
	if c.Unknown != "" {
		printLine(w, "changes      unknown: %s\n", c.Unknown)
		return
	}
	printLine(w, "changes      %s\n", count(len(c.Changes), "file"))
	for _, change := range c.Changes {
		printLine(w, "  %-7s    %s\n", change.Change, tutti.Plain(change.Path, maxLine))
	}
}

// codeVersionText returns a text with a code's digest and the operator who
// pushed it.
func codeVersionText(v api.CodeVersion, now time.Time) string {
	if v.At.IsZero() {
		return fmt.Sprintf("%.19s, the log no longer shows who pushed it", v.Code)
	}
	return fmt.Sprintf("%.19s, pushed by %s %s (%s): %s, %d bytes%s", v.Code, v.By, stamp(v.At), ago(v.At, now), count(v.Files, "file"), v.Bytes, commitText(v.Source))
}

// signedText returns a text with the keys that have signed something.
func signedText(s api.SignedBy) string {
	if s.Counter == 0 {
		return "without a counter"
	}
	return fmt.Sprintf("counter %d, by %s", s.Counter, keyNames(s.Keys))
}

// goesText returns a text about the code with which nodes run by themselves.
func goesText(c api.CodeShown) string {
	if !c.Held {
		return "nodes run with it"
	}
	held := strings.TrimPrefix(heldText(tutti.CodePushed{Held: c.Held, Canary: c.Canary}), ", ")
	if c.Goes == "" {
		return held + "; nodes do not run by themselves"
	}
	return fmt.Sprintf("%s; nodes that run by themselves use %.19s", held, c.Goes)
}

func havingText(c api.CodeShown) string {
	text := fmt.Sprintf("%s had this code in the last run", count(c.Have, "node"))
	if c.OtherNodes > 0 {
		text += fmt.Sprintf(", %d not: %s", c.OtherNodes, someNodes(c.Others, c.OtherNodes))
	}
	return text
}
