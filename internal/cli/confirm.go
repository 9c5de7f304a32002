package cli

import (
	"bufio"
	"context"
	"fmt"
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

// confirm asks on a terminal; elsewhere --yes is needed.
func (o *options) confirm(cmd *cobra.Command, what string) error {
	if o.yes {
		return nil
	}
	if f, ok := cmd.InOrStdin().(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return tutti.Errorf(tutti.CodeInvalid, "%s: not confirmed; add --yes", what)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? [y/N] ", what)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil || !strings.EqualFold(strings.TrimSpace(line), "y") {
		return tutti.Errorf(tutti.CodeInvalid, "%s: not confirmed", what)
	}
	return nil
}
