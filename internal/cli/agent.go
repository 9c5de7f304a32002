package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// AgentRun is how an agent runs.
type AgentRun struct {
	Dir  string
	Root string // below which Puppet is looked for
	Beat time.Duration
	// Policy is the file that says who may ask this node's Puppet for what.
	Policy string
	// Warm is how long Puppet stays loaded for the next run.
	Warm time.Duration
	// FactsEvery is how often facts are collected though nothing is seen to have changed; 0: never.
	FactsEvery time.Duration
}

// JoinNode is how a machine joins.
type JoinNode struct {
	Dir   string
	Token string
	Name  tutti.NodeName
	Again bool // it was a node before, and is not let in any more
	Unit  bool
}

func newAgentCommand(o *options) *cobra.Command {
	var run AgentRun
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.deps.RunAgent(cmd.Context(), run)
		},
	}
	f := cmd.Flags()
	f.StringVar(&run.Dir, "dir", DefaultAgentDir, "state directory")
	f.StringVar(&run.Root, "root", "/", "below this Puppet is looked for")
	_ = f.MarkHidden("root") // for tests: a node has one Puppet
	f.StringVar(&run.Policy, "policy", DefaultPolicy, "who may ask this node's Puppet for what; without that file: see tutti policy check --help")
	f.DurationVar(&run.Warm, "warm", 10*time.Minute, "how long Puppet stays loaded for the next run; 0: each run starts a Puppet of its own")
	f.DurationVar(&run.FactsEvery, "facts-every", 10*time.Minute, "how often facts are collected besides after each run, to see changes; 0: never")
	f.DurationVar(&run.Beat, "beat", 5*time.Second, "time between heartbeats")
	return cmd
}

func newJoinCommand(o *options) *cobra.Command {
	var in JoinNode
	var name, file string
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Make this machine a node, with a token from standard input",
		Long: `Reads a join token (tutti token create) from standard input or a file, makes the
node's keys here, enrols them, and starts the agent's systemd unit.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := readToken(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			in.Token, in.Name = token, tutti.NodeName(name)
			node, err := o.deps.Join(cmd.Context(), in)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("Joined as %s.\n", node)
			if !in.Unit {
				text += fmt.Sprintf("Start the agent with: tutti agent --dir %s\n", in.Dir)
			}
			return o.done(cmd, text, map[string]any{"node": node, "dir": in.Dir})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultAgentDir, "the agent's state directory")
	f.StringVar(&file, "token-file", "", "read the token from this file instead of standard input")
	f.StringVar(&name, "name", "", "the node's name (default: the token's, else this host's)")
	f.BoolVar(&in.Again, "again", false, "this machine is a node that the server does not let in any more; it keeps its keys and data")
	f.BoolVar(&in.Unit, "unit", true, "install and start the systemd unit tutti-agent")
	return cmd
}

const maxToken = 8 << 10

// readToken takes a token from a file or standard input: an argument would be
// seen by everybody on the machine.
func readToken(stdin io.Reader, file string) (string, error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", tutti.Wrap(tutti.CodeInvalid, err, "token file")
		}
		defer f.Close()
		stdin = f
	}
	raw, err := io.ReadAll(io.LimitReader(stdin, maxToken))
	if err != nil {
		return "", tutti.Wrap(tutti.CodeInvalid, err, "read the token")
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", tutti.Errorf(tutti.CodeInvalid, "no token on standard input; make one with: tutti token create --name NODE")
	}
	return token, nil
}
