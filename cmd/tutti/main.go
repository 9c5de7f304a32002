// Command tutti orchestrates Puppet and OpenVox fleets. One binary is the
// server, the agent and the command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cli.NewRoot(app.Commands()).ExecuteContext(ctx)
	stop()
	if _, silent := errors.AsType[cli.CommandExit](err); err != nil && !silent {
		fmt.Fprintln(os.Stderr, "tutti:", tutti.Visible(err.Error()))
	}
	os.Exit(cli.ExitCode(err))
}
