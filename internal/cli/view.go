package cli

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tutti-project/tutti/api"
)

// view shows a job while the job runs. The rules for the terminal are in doc.go.
type view interface {
	// show shows an item. The caller has already applied the item w to progress.
	show(w api.Watched)
	// say prints a message about the watch itself, and not about the job.
	say(message string)
	// finish shows the end. err is the reason why the watch ended. err is nil if there is a
	// verdict.
	finish(err error)
	close()
}

// newView returns the view for the output. The view is JSON lines with --json, a live tree on a
// terminal, and plain lines otherwise.
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
