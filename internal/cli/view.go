package cli

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tutti-project/tutti/api"
)

// view shows a job while it goes on. The rules of the terminal are in doc.go.
type view interface {
	// show is called after progress has taken w in.
	show(w api.Watched)
	// say tells the person something about the watching itself.
	say(message string)
	// finish shows the end; err is why the watching ended, nil at the verdict.
	finish(err error)
	close()
}

// newView chooses: JSON lines if asked for, a live tree on a terminal, plain
// lines in a pipe.
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
