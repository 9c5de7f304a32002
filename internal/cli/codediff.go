package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newCodeDiffCommand(o *options) *cobra.Command {
	var stat bool
	var environment string
	cmd := &cobra.Command{
		Use:   "diff [A..B]",
		Short: "Compare two codes, file by file",
		Long: `Prints what B changes in the files of A. A and B are codes of "tutti code list", or names
of environments. A name stands for the last push of that environment. Without A..B the
command compares the last push with the code before it.`,
		Example: `  tutti code diff
  tutti code diff production..canary
  tutti code diff --stat 9b21f0..c9ea4c`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, b := api.CodeQuery{Environment: environment, Before: true}, api.CodeQuery{Environment: environment}
			if len(args) > 0 {
				from, to, ranged := strings.Cut(args[0], "..")
				if !ranged || from == "" || to == "" {
					return tutti.Errorf(tutti.CodeInvalid, "%q: write A..B, for example production..canary", args[0])
				}
				if environment != "" {
					return tutti.Errorf(tutti.CodeInvalid, "--environment is for the last two codes of an environment: leave it out with A..B")
				}
				a, b = api.CodeQuery{Code: from}, api.CodeQuery{Code: to}
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			d, err := newCodeDiff(cmd.Context(), server, a, b)
			switch {
			case err != nil:
				return err
			case o.json:
				return printJSON(cmd.OutOrStdout(), d.view())
			case stat:
				return d.stat(cmd.OutOrStdout())
			}
			return d.print(cmd.Context(), server, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&environment, "environment", "", "compare the last two codes of this environment")
	cmd.Flags().BoolVar(&stat, "stat", false, "print only the names of the files")
	return cmd
}

// The type `codeDiff` is the difference between two codes.
type codeDiff struct {
	a, b    codeSide
	changes []api.CodeChange // sorted by path
}

type codeSide struct {
	api.CodeEntry
	files map[string]tutti.CodeFile
}

func newCodeDiff(ctx context.Context, server api.Codes, a, b api.CodeQuery) (codeDiff, error) {
	var d codeDiff
	var err error
	if d.a, err = sideOf(ctx, server, a); err == nil {
		d.b, err = sideOf(ctx, server, b)
	}
	if err != nil {
		return d, err
	}
	d.changes = api.ChangesOf(d.a.files, d.b.files)
	return d, nil
}

// sideOf reads the list of files of a code. A query may have the name of an environment instead of a code.
func sideOf(ctx context.Context, server api.Codes, in api.CodeQuery) (codeSide, error) {
	kept, err := server.GetCode(ctx, in)
	if code := tutti.CodeOf(err); in.Code != "" && (code == tutti.CodeInvalid || code == tutti.CodeNotFound) {
		if of, other := server.GetCode(ctx, api.CodeQuery{Environment: in.Code}); other == nil {
			kept, err = of, nil
		}
	}
	if err != nil {
		return codeSide{}, err
	}
	var manifest tutti.CodeManifest
	if err := json.Unmarshal(kept.Manifest, &manifest); err != nil {
		return codeSide{}, tutti.Wrap(tutti.CodeDamaged, err, "the list of the files of %.19s", kept.Code)
	}
	return codeSide{kept.CodeEntry, manifest.Files}, nil
}

// The method `view` returns the difference for JSON.
func (d codeDiff) view() map[string]any {
	return map[string]any{"from": d.a.CodeEntry, "to": d.b.CodeEntry, "changes": append([]api.CodeChange{}, d.changes...)}
}

// The method `head` prints which codes are compared.
func (d codeDiff) head(w io.Writer) {
	printLine(w, "%s %s (%s) → %s %s (%s): %s\n", d.a.Environment, shortCode(d.a.Code), orDash(tutti.InLine(d.a.Source.Short())),
		d.b.Environment, shortCode(d.b.Code), orDash(tutti.InLine(d.b.Source.Short())), count(len(d.changes), "file"))
}

func (d codeDiff) stat(w io.Writer) error {
	d.head(w)
	for _, c := range d.changes {
		printLine(w, "  %-7s  %s\n", c.Change, tutti.Plain(c.Path, maxLine))
	}
	return nil
}

func (d codeDiff) print(ctx context.Context, server api.Codes, w io.Writer) error {
	d.head(w)
	for _, c := range d.changes {
		path := tutti.Plain(tutti.InLine(c.Path), maxLine)
		was, is := d.a.files[c.Path], d.b.files[c.Path]
		if max(was.Size, is.Size) > api.MaxCodeRead {
			printLine(w, "\n%s %s: large, %d → %d bytes\n", c.Change, path, was.Size, is.Size)
			continue
		}
		before, err := d.a.text(ctx, server, c.Path)
		if err != nil {
			return err
		}
		after, err := d.b.text(ctx, server, c.Path)
		if err != nil {
			return err
		}
		fmt.Fprintln(w)
		if !isText(before) || !isText(after) {
			printLine(w, "%s %s: binary, %d → %d bytes\n", c.Change, path, len(before), len(after))
			continue
		}
		switch same := bytes.Equal(before, after); {
		case same && c.Change == api.FileChanged:
			printLine(w, "%s %s: executable %t → %t\n", c.Change, path, was.Exec, is.Exec)
			continue
		case same:
			printLine(w, "%s %s: empty\n", c.Change, path)
			continue
		}
		for _, line := range strings.Split(strings.TrimSuffix(string(diff.Diff("a/"+path, before, "b/"+path, after)), "\n"), "\n") {
			fmt.Fprintln(w, tutti.Visible(line))
		}
	}
	return nil
}

// The method `text` reads a file of a code. A file that the code does not have is empty, and a link is its target.
func (s codeSide) text(ctx context.Context, server api.Codes, name string) ([]byte, error) {
	file, there := s.files[name]
	switch {
	case !there:
		return nil, nil
	case file.Link != "":
		return []byte("link to " + file.Link + "\n"), nil
	}
	read, err := server.ReadCode(ctx, api.CodeQuery{Environment: s.Environment, Code: string(s.Code), Path: name})
	return read.Content, err
}

func isText(content []byte) bool {
	return utf8.Valid(content) && !bytes.Contains(content, []byte{0})
}
