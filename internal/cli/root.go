package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Server is what operators can call on a server.
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

// Deps are the functions that the commands call.
type Deps struct {
	Version string
	Lab     Lab
	// Connect returns the server that the flags name.
	Connect func(c Connection) (Server, error)
	// Push sends the environment in dir to the server, signed with the
	// operator's key.
	Push func(ctx context.Context, s Server, c Connection, in PushCode) (tutti.CodePushed, error)
	// SignFleet signs the text of a fleet file; nil: the operator has no code-signing key.
	SignFleet func(ctx context.Context, s Server, c Connection, source []byte) (*tutti.Statement, error)
	// CodeDigest is the digest with which Push would send the environment in dir.
	CodeDigest func(dir, environment string) (tutti.Digest, error)
	// InitServer makes a server's data directory and the first operator.
	InitServer func(o ServerInit) error
	// RunServer and RunAgent serve until ctx ends.
	RunServer func(ctx context.Context, o ServerRun) error
	RunAgent  func(ctx context.Context, o AgentRun) error
	// Join makes this machine a node.
	Join    func(ctx context.Context, o JoinNode) (JoinedNode, error)
	Backups Backups
	Doctor  Doctor
	// Leave undoes Join.
	Leave Leaver
	// CreateOperator creates an operator and writes the credentials.
	CreateOperator func(ctx context.Context, s Server, c Connection, in OperatorCreate) (api.IssuedOperator, error)
	// RequestOperator makes a key in dir and returns a request for its certificate.
	RequestOperator func(name, dir string) ([]byte, error)
	// OperatorsKey returns the public key with which the operator of a directory signs actions.
	OperatorsKey func(dir string) (tutti.OperatorKey, error)
	// TrustOperator signs the next list of operators who sign actions.
	TrustOperator func(ctx context.Context, s Server, c Connection, in TrustOperator) (OperatorsTrusted, error)
	// SignAction signs a change for some nodes. It returns nil if operators do not sign actions in this fleet.
	SignAction func(ctx context.Context, s Server, c Connection, in api.AskNodes, nodes []tutti.NodeName) ([]tutti.Statement, error)
	// RotateCodeKey takes the next steps of a rotation of the code-signing key.
	RotateCodeKey func(ctx context.Context, s Server, c Connection, in RotateCodeKey) (CodeKeyRotation, error)
	// Chaos lets a fleet on a lab suffer faults, and returns what is wrong afterwards.
	Chaos func(ctx context.Context, c Connection, in Chaos, say func(format string, args ...any)) ([]string, error)
	// InstallPuppetServer puts the module on the Puppet Server of this machine.
	InstallPuppetServer InstallPuppetServer
	// InstallModule writes the Puppet module where CI or an IDE looks for it.
	InstallModule InstallModule
	// Local is what root can do on a node.
	Local Local
	// RotateBox gives the node of an agent's directory another key for its secrets.
	RotateBox func(ctx context.Context, dir string) error
	// Sealer seals secrets.
	Sealer Sealer
	// CheckPolicy returns the places in a node's policy that do not do what they seem to do.
	CheckPolicy func(file string) ([]PolicyFinding, error)
	// Demo boots, deploys and shows a fleet.
	Demo func(ctx context.Context, o Demo, show func(ctx context.Context, s Server, job tutti.JobID) error) error
}

// Connection says which server to use, and which operator uses it.
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
		Long: `Tutti brings multi-node systems up in the right order with Puppet. It knows what
happened: every run records what it read and what it published.

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
		newExplainCommand(o), newGraphCommand(o), newAuditCommand(o), newAccessCommand(o), newDoctorCommand(o), newPlanCommand(o), newPolicyCommand(o))
	group(root, "Fleet",
		newCodeCommand(o), newDataCommand(o), newSecretCommand(o), newNodeCommand(o), newOperatorCommand(o), newTokenCommand(o), newGrantsCommand(o))
	group(root, "Set up",
		newServerCommand(o), newAgentCommand(o), newJoinCommand(o), newLeaveCommand(o), newRotateCommand(o),
		newPuppetServerCommand(o), newModuleCommand(o))
	group(root, "Lab", newLabCommand(o), newDemoCommand(o))
	root.SetHelpCommandGroupID("Set up")
	root.SetCompletionCommandGroupID("Set up")
}

// badInput gives errors about arguments of all commands the code CodeInvalid.
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

// done prints that a change was made: the text (may be empty), or with --json
// what was changed.
func (o *options) done(cmd *cobra.Command, text string, changed map[string]any) error {
	if o.json {
		return printJSON(cmd.OutOrStdout(), changed)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// printJSON writes one value as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := newEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
