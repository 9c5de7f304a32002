package cli

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tutti-project/tutti/api"
)

// A view shows a job while the job runs. The rules for the terminal are in doc.go.
type view interface {
	// The method `show` shows the item `w`. Before the call, the caller has applied the item to
	// the progress.
	show(w api.Watched)
	// The method `say` prints a message about the connection, not about the job.
	say(message string)
	// The method `finish` shows the end. If the job has a verdict, `err` is nil. If the
	// command stops watching before the verdict, `err` is the reason.
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
