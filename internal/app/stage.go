package app

import (
	"context"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// labOperator connects the operator's side of this package with the interface of package
// stage.
type labOperator struct{}

var _ stage.Operator = labOperator{}

func (labOperator) ServerURL(conn cli.Connection) (string, error) {
	return operator.ConnectOptions(conn).ServerURL()
}

func (labOperator) KeepServer(dir, url string) error { return operator.WriteServer(dir, url) }

func (labOperator) Connect(conn cli.Connection) (*httpapi.Client, error) {
	return operator.Connect(operator.ConnectOptions(conn))
}

func (labOperator) Push(ctx context.Context, s cli.Server, conn cli.Connection, in cli.PushCode) (tutti.CodePushed, error) {
	return push(ctx, s, conn, in)
}

// StartLabFleet is [stage.StartLabFleet] with this package's connection to the server.
func StartLabFleet(ctx context.Context, running *lab.Running, serverHost, binary, dir string) (*stage.LabFleet, error) {
	return stage.StartLabFleet(ctx, labOperator{}, running, serverHost, binary, dir)
}

func demo(ctx context.Context, o cli.Demo, show func(context.Context, cli.Server, tutti.JobID) error) error {
	return stage.Demo(ctx, labOperator{}, o, show)
}

func runChaos(ctx context.Context, conn cli.Connection, in cli.Chaos, say func(string, ...any)) ([]string, error) {
	return stage.RunChaos(ctx, labOperator{}, conn, in, say)
}
