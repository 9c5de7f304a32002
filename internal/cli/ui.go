package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// UI are the settings of the page in a browser.
type UI struct {
	Path    string // the path of the first page, below /ui/
	Browser bool   // open the page in a browser
	// Opened is called when the page can be opened. Refused is called with the reason of each refused request. The value
	// `stolen` says that somebody showed a code that was used before.
	Opened  func(UIOpened)
	Refused func(why error, stolen bool)
}

// UIOpened is where the page is.
type UIOpened struct {
	URL  string `json:"url"`
	File string `json:"file"`
	// NoBrowser is the reason why no browser was started.
	NoBrowser string `json:"no_browser,omitempty"`
}

// OpenUI opens the page, and keeps it open until ctx ends or nobody uses the page for an hour.
type OpenUI func(ctx context.Context, c Connection, in UI) error

func newUICommand(o *options) *cobra.Command {
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "ui [PATH]",
		Short: "Show the fleet in a browser on this machine",
		Long: `Opens a page in your browser. The page shows what the operator may read, and it
changes nothing. The command gets the data with the operator's certificate, so the
browser needs no certificate.

The printed address works once, within a minute. Afterwards only that browser can
use the page. The page is on this machine only. It ends with Ctrl-C, or when nobody
has used it for an hour.

PATH is the page to begin with.`,
		Example: `  tutti ui
  tutti ui nodes/web-01`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := UI{Browser: !noBrowser, Opened: func(at UIOpened) {
				if o.json {
					_ = printJSON(cmd.OutOrStdout(), at)
					return
				}
				printOpened(cmd, at)
			}}
			if len(args) > 0 {
				in.Path = args[0]
			}
			said := &refusals{out: cmd.ErrOrStderr()}
			defer said.flush()
			in.Refused = said.add
			// The page goes on if nobody reads the output any more. A channel, and not signal.Ignore, because the browser
			// would inherit that.
			broken := make(chan os.Signal, 1)
			signal.Notify(broken, syscall.SIGPIPE)
			defer signal.Stop(broken)
			ctx, stop := cmd.Context(), func() {}
			if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
				ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal has gone: end like with Ctrl-C
			}
			defer stop()
			return o.deps.OpenUI(ctx, o.conn, in)
		},
	}
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "only print the address, and start no browser")
	return cmd
}

func printOpened(cmd *cobra.Command, at UIOpened) {
	out := cmd.OutOrStdout()
	fmt.Fprintln(out, at.URL)
	fmt.Fprintln(out, "The address works once, within a minute. The page only reads. Ctrl-C ends it.")
	if at.NoBrowser != "" {
		fmt.Fprintf(out, "No browser was started (%s): open the address yourself.\n", at.NoBrowser)
	}
}
