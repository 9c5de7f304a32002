package cli

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tutti-project/tutti/api"
)

// view shows a job while it goes on. The rules of the terminal are in doc.go.
type view interface {
	// show is called after progress has applied w.
	show(w api.Watched)
	// say prints a message about the watch itself, not about the job.
	say(message string)
	// finish shows the end. err is why the watch ended, nil at the verdict.
	finish(err error)
	close()
}

// newView returns the view for the output: JSON lines with --json, a live tree on a terminal, plain
// lines otherwise.
func (o *options) newView(cmd *cobra.Command, p *progress) view {
	out := cmd.OutOrStdout()
	if o.json {
		return &jsonView{progress: p, out: newEncoder(out)}
	}
	if f, ok := rawOf(out).(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		return newTreeView(p, f, cmd.ErrOrStderr())
	}
	return &plainView{progress: p, out: out, hints: cmd.ErrOrStderr()}
}
