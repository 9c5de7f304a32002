package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

// The type `revokes` is a server that answers each revocation with the value of `out`.
type revokes struct {
	cli.Server
	out api.RevokedOperator
	in  *api.RevokeOperator
}

func (s revokes) RevokeOperator(_ context.Context, in api.RevokeOperator) (api.RevokedOperator, error) {
	*s.in = in
	return s.out, nil
}

// TestARevocationSaysWhatGoesOn checks which jobs the output names. One of the servers is of an earlier release and
// cancels nothing.
func TestARevocationSaysWhatGoesOn(t *testing.T) {
	none := []tutti.JobID{}
	for _, tc := range []struct {
		reason string
		out    api.RevokedOperator
		says   []string
	}{
		{"no jobs", api.RevokedOperator{Cancelled: none, GoOn: none}, nil},
		{"both", api.RevokedOperator{Cancelled: []tutti.JobID{"deploy-2", "deploy-3"}, GoOn: []tutti.JobID{"deploy-1"}},
			[]string{"Cancelled: deploy-2,deploy-3", "These jobs of the operator continue: deploy-1; to cancel one: tutti job cancel JOB"}},
		{"an earlier server", api.RevokedOperator{}, []string{"The server is of an earlier release and has not cancelled their jobs. Look at tutti job list, and cancel each with: tutti job cancel JOB"}},
	} {
		var in api.RevokeOperator
		root := cli.NewRoot(cli.Deps{Connect: func(cli.Connection) (cli.Server, error) { return revokes{nil, tc.out, &in}, nil }})
		var out bytes.Buffer
		root.SetArgs(strings.Fields("operator revoke eve --cancel-jobs --yes"))
		root.SetOut(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if got := strings.Join(lines[1:], "\n"); got != strings.Join(tc.says, "\n") {
			t.Errorf("%s: says %q, want %q", tc.reason, got, tc.says)
		}
		if !in.CancelJobs {
			t.Errorf("%s: --cancel-jobs did not reach the server", tc.reason)
		}
	}
}
