package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tutti-project/tutti"
)

type nodeChange func(s Server, ctx context.Context, n tutti.NodeName) error

func (o *options) addYes(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
}

// The method `confirm` asks a person on the terminal, even if standard input is a file or a pipe. If there is no
// terminal, the method returns an error, and the person must use --yes.
func (o *options) confirm(cmd *cobra.Command, what string) error {
	if o.yes {
		return nil
	}
	answers, done := terminal(cmd)
	if answers == nil {
		return tutti.Errorf(tutti.CodeInvalid, "%s: not confirmed; add --yes", what)
	}
	defer done()
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? [y/N] ", what)
	line, err := bufio.NewReader(answers).ReadString('\n')
	if err != nil || !strings.EqualFold(strings.TrimSpace(line), "y") {
		return tutti.Errorf(tutti.CodeInvalid, "%s: not confirmed", what)
	}
	return nil
}

// The function `terminal` returns the terminal on which a person can answer a question. The command prints the
// question to standard error. If there is no terminal, the function returns nil.
func terminal(cmd *cobra.Command) (answers io.Reader, done func()) {
	if isTerminal(cmd.InOrStdin()) {
		return cmd.InOrStdin(), func() {}
	}
	if !isTerminal(cmd.ErrOrStderr()) {
		return nil, nil
	}
	f, err := os.Open("/dev/tty")
	if err != nil {
		return nil, nil
	}
	return f, func() { f.Close() }
}

// isTerminal reports whether a command's input or output stream is a terminal.
func isTerminal(stream any) bool {
	if w, ok := stream.(*visibleWriter); ok {
		stream = w.file
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
