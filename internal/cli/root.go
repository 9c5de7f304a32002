package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Server contains all calls that operators can send to a server.
type Server interface {
	api.Jobs
	api.Nodes
	api.Tokens
	api.Operators
	api.Codes
	api.Signings
	api.Values
	api.Pauses
	api.Audits
	api.Explains
	api.Remotes
	api.Reports
	api.Secrets
	api.Rotations
}

// Deps contains the functions that the commands call.
type Deps struct {
	Version string
	Lab     Lab
	// Connect returns the server that the flags name.
	Connect func(c Connection) (Server, error)
	// Push signs the environment in dir with the operator's key, and sends it to the server.
	Push func(ctx context.Context, s Server, c Connection, in PushCode) (tutti.CodePushed, error)
	// CheckCode checks the code in a directory with the Puppet of this machine.
	CheckCode func(ctx context.Context, dir string, modules []string) ([]tutti.CodeProblem, error)
	// Deploy puts the code of an environment together from a control repository.
	Deploy func(ctx context.Context, in DeployCode) (Deployable, error)
	// DiffCode sends code to the server and permits nodes to compile it, but not to apply it.
	DiffCode func(ctx context.Context, s Server, c Connection, in DiffCode) (DiffSide, error)
	// Rollback signs an earlier code again and pushes it.
	Rollback func(ctx context.Context, s Server, c Connection, in RollbackTo) (tutti.CodePushed, error)
	// SignFleet signs the text of a fleet file. SignFleet returns nil if the operator has no code-signing
	// key.
	SignFleet func(ctx context.Context, s Server, c Connection, source []byte) (*tutti.Statement, error)
	// CodeDigest returns the digest that the environment in dir would have after a Push.
	CodeDigest func(dir, environment string) (tutti.Digest, error)
	// InitServer creates a server's data directory and the first operator.
	InitServer func(o ServerInit) error
	// RunServer and RunAgent run a server or an agent until ctx ends.
	RunServer func(ctx context.Context, o ServerRun) error
	RunAgent  func(ctx context.Context, o AgentRun) error
	// Join makes this machine a node.
	Join    func(ctx context.Context, o JoinNode) (JoinedNode, error)
	Backups Backups
	// ReportsOut handles the destinations of reports.
	ReportsOut ReportsOut
	Doctor     Doctor
	// Leave undoes Join.
	Leave Leaver
	// CreateOperator creates an operator and writes the credentials.
	CreateOperator func(ctx context.Context, s Server, c Connection, in OperatorCreate) (api.IssuedOperator, error)
	// RequestOperator makes a key in dir and returns a request for its certificate.
	RequestOperator func(name, dir string) ([]byte, error)
	// OperatorsKey returns the public key with which the operator of a directory signs actions.
	OperatorsKey func(dir string) (tutti.OperatorKey, error)
	// TrustOperator changes the list of operators who sign actions, and signs the new list.
	TrustOperator func(ctx context.Context, s Server, c Connection, in TrustOperator) (OperatorsTrusted, error)
	// SignAction signs a change for the named nodes. SignAction returns nil if operators do not sign actions
	// in this fleet.
	SignAction func(ctx context.Context, s Server, c Connection, in api.NodesQuestion, nodes []tutti.NodeName) ([]tutti.Statement, error)
	// RotateCodeKey does the next steps of a rotation of the code-signing key.
	RotateCodeKey func(ctx context.Context, s Server, c Connection, in RotateCodeKey) (CodeKeyRotation, error)
	// Chaos tests a fleet on a lab with faults, and returns what is wrong afterwards.
	Chaos func(ctx context.Context, c Connection, in Chaos, say func(format string, args ...any)) ([]string, error)
	// InstallPuppetServer installs the module on the Puppet Server of this machine.
	InstallPuppetServer InstallPuppetServer
	// InstallModule writes the Puppet module into a directory where CI or an IDE finds it.
	InstallModule InstallModule
	// Local are the actions that root can do on a node without the server.
	Local Local
	// RotateBox makes a new key for the secrets of the node with this state directory.
	RotateBox func(ctx context.Context, dir string) error
	// Sealer seals secrets.
	Sealer Sealer
	// CheckPolicy returns the lines in a node's policy that do not have the effect that a reader expects.
	CheckPolicy func(file string) ([]PolicyFinding, error)
	// OpenUI shows the page in a browser.
	OpenUI OpenUI
	// Demo boots a fleet, deploys an example on it and shows it.
	Demo func(ctx context.Context, o Demo, show func(ctx context.Context, s Server, job tutti.JobID) error) error
}

// Connection names the server and the operator that a command uses.
type Connection struct {
	Server      string
	OperatorDir string
	Socket      string
}

// options are the flags that all commands share.
type options struct {
	deps Deps
	conn Connection
	json bool
	yes  bool
}

func (o *options) connect() (Server, error) { return o.deps.Connect(o.conn) }

// NewRoot returns the command tutti with all its subcommands.
func NewRoot(d Deps) *cobra.Command {
	o := &options{deps: d}
	root := &cobra.Command{
		Use:   "tutti",
		Short: "Orchestrate Puppet and OpenVox fleets",
		Long: `Tutti brings multi-node systems up in the right order with Puppet. Every run
records what it read and what it published, so you can find out what happened.

Exit codes:
` + exitCodes,
		Version:       d.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&o.conn.Server, "server", "", "URL of the server (default: the one in the operator's directory)")
	f.StringVar(&o.conn.OperatorDir, "operator", defaultOperatorDir(), "directory with the operator's credentials; also $TUTTI_OPERATOR")
	f.StringVar(&o.conn.Socket, "socket", DefaultSocket, "the server's local socket, used if there are no credentials")
	f.BoolVar(&o.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return tutti.Errorf(tutti.CodeInvalid, "%v; see: %s --help", err, cmd.CommandPath())
	})
	addCommands(root, o)
	badInput(root)
	root.SetOut(&visibleWriter{file: os.Stdout})
	root.SetErr(&visibleWriter{file: os.Stderr})
	return root
}

// addCommands adds all commands, in the groups that the help shows.
func addCommands(root *cobra.Command, o *options) {
	group(root, "Run",
		newRunCommand(o), newConvergeCommand(o), newJobCommand(o), newPauseCommand(o), newUnpauseCommand(o), newPuppetCommand(o), newLocalCommand(o))
	group(root, "Look",
		newExplainCommand(o), newQueryCommand(o), newGraphCommand(o), newAuditCommand(o), newAccessCommand(o), newStatusCommand(o), newUICommand(o), newDoctorCommand(o), newPlanCommand(o), newPolicyCommand(o), newDiffCommand(o))
	group(root, "Fleet",
		newCodeCommand(o), newDataCommand(o), newSecretCommand(o), newNodeCommand(o), newOperatorCommand(o), newTokenCommand(o), newGrantsCommand(o))
	group(root, "Set up",
		newServerCommand(o), newAgentCommand(o), newJoinCommand(o), newLeaveCommand(o), newRotateCommand(o),
		newPuppetServerCommand(o), newModuleCommand(o))
	group(root, "Lab", newLabCommand(o), newDemoCommand(o))
	root.SetHelpCommandGroupID("Set up")
	root.SetCompletionCommandGroupID("Set up")
}

// badInput makes all commands return CodeInvalid for wrong arguments.
func badInput(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return tutti.Errorf(tutti.CodeInvalid, "%v; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return tutti.Errorf(tutti.CodeInvalid, "no command %q; see: %s --help", cmd.Name()+" "+args[0], cmd.CommandPath())
			}
			return cmd.Help()
		}
		cmd.Args = cobra.ArbitraryArgs
	}
	for _, sub := range cmd.Commands() {
		badInput(sub)
	}
}

// The method `done` reports that a command has changed something. The method prints `text`, which may be
// empty. With --json it prints `changed` instead.
func (o *options) done(cmd *cobra.Command, text string, changed map[string]any) error {
	if o.json {
		return printJSON(cmd.OutOrStdout(), changed)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// printJSON prints one value as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
