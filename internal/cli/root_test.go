package cli_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/cli"
)

// TestWrongUse checks errors in the command line. The command reports these
// errors before it sends a request to a server, and says what would be right.
func TestWrongUse(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   string
		says   string
	}{
		"no argument":       {"which plan?", "run", "usage: tutti run PLAN"},
		"one too many":      {"a second plan", "run a b", "usage: tutti run PLAN"},
		"no flag":           {"a token is for somebody", "token create", "usage: tutti token create --name PATTERN"},
		"argument for flag": {"the name is a flag", "token create web-01", "usage: tutti token create --name PATTERN"},
		"unknown flag":      {"there is none of that name", "run deploy --wat", "tutti run --help"},
		"unknown command":   {"at the root", "dance", "tutti --help"},
		"unknown below":     {"below a command", "code dance", "tutti code --help"},
		"no fleet file":     {"where is it?", "plan show", "--file"},
	}
	t.Chdir(t.TempDir())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := cli.NewRoot(cli.Deps{})
			root.SetArgs(strings.Fields(tc.args))
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			err := root.ExecuteContext(context.Background())
			if code := cli.ExitCode(err); code != cli.ExitInvalid {
				t.Errorf("%s: tutti %s ended with %v, exit code %d, want %d", tc.reason, tc.args, err, code, cli.ExitInvalid)
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: tutti %s said %v, want %q in it", tc.reason, tc.args, err, tc.says)
			}
		})
	}
}
