package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tutti-project/tutti"
)

// AgentRun are the settings of an agent.
type AgentRun struct {
	Dir  string
	Root string // directory under which the agent looks for Puppet
	Beat time.Duration
	// Policy is the file that defines who may request which action from this node's Puppet.
	Policy string
	// Warm is how long Puppet stays loaded for the next run.
	Warm time.Duration
	// FactsEvery is the time after which the agent collects facts, even if it has noticed no change. With 0 the
	// agent collects facts only after a change.
	FactsEvery time.Duration
}

// JoinNode are the settings with which a machine joins.
type JoinNode struct {
	Dir   string
	Token string
	Name  tutti.NodeName
	Again bool // the machine was a node before, but the server no longer admits it
	Unit  bool
	Root  string // directory under which join looks for Puppet
	// CodeKeys are the digests of all keys that may sign code. If CodeKeys is empty, a new node trusts the server's
	// keys, and a joined node trusts the keys that it has stored.
	CodeKeys []string
	// ByCertificate joins with the machine's Puppet certificate instead of a token. Server and Pin are needed then. If
	// Certificate and PrivateKey are empty, Puppet says which files these are.
	ByCertificate           bool
	Server                  string
	Pin                     tutti.Digest
	Certificate, PrivateKey string
}

// JoinedNode is the result of a join.
type JoinedNode struct {
	Node tutti.NodeName `json:"node,omitempty"`
	Dir  string         `json:"dir"`
	// Pending says why an operator must approve the machine first. The machine is no node yet.
	Pending string    `json:"pending,omitempty"`
	Found   []Finding `json:"found,omitempty"` // problems of this node, found by the doctor
}

// rootFlag adds a hidden flag that only tests use. A real node has only one Puppet.
func rootFlag(f *pflag.FlagSet, root *string) {
	f.StringVar(root, "root", "/", "directory below which to look for Puppet")
	_ = f.MarkHidden("root")
}

func newAgentCommand(o *options) *cobra.Command {
	var run AgentRun
	cmd := &cobra.Command{
		Use:     "agent",
		Short:   "Run the agent of this node",
		Example: "  tutti agent --policy /etc/tutti/policy",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.deps.RunAgent(cmd.Context(), run)
		},
	}
	f := cmd.Flags()
	f.StringVar(&run.Dir, "dir", DefaultAgentDir, "state directory")
	rootFlag(f, &run.Root)
	f.StringVar(&run.Policy, "policy", DefaultPolicy, "file that says who may ask this node's Puppet for what; see tutti policy check --help")
	f.DurationVar(&run.Warm, "warm", 10*time.Minute, "how long Puppet stays loaded for the next run; 0: each run starts a new Puppet")
	f.DurationVar(&run.FactsEvery, "facts-every", 10*time.Minute, "how often to collect facts between runs, to see changes; 0: never")
	f.DurationVar(&run.Beat, "beat", 5*time.Second, "time between heartbeats")
	cmd.AddCommand(newAgentRotateKeyCommand(o))
	return cmd
}

func newAgentRotateKeyCommand(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Rotate the key of this node's secrets, as root",
		Long: `Makes a new key for the secrets of this node. The agent seals the node's secrets again,
to the new key, and tells the server. No secret changes, and no node runs or waits.
Operators who have sealed secrets to this node then run: tutti secret trust NODE.

The old key (node.x25519.old) still opens secrets that came to the node earlier. The
next rotation removes the old key. If the rotation is interrupted, the agent finishes
the rotation.`,
		Example: "  tutti agent rotate-key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.deps.RotateBox(cmd.Context(), dir); err != nil {
				return err
			}
			return o.done(cmd, "", map[string]any{"dir": dir})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultAgentDir, "the agent's state directory")
	return cmd
}

func newJoinCommand(o *options) *cobra.Command {
	var in JoinNode
	var name, file, pin string
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Make this machine a node, with a token or its Puppet certificate",
		Long: `Reads a join token (tutti token create) from standard input or a file.
Makes the node's keys on this machine, enrols them, and starts the agent's systemd unit.
If Puppet's certname for this machine is different, join prints what this means and how
to correct it. The machine still becomes a node.

With --again a node keeps its keys, its data, and what it trusts: the code keys and
the list of operators who sign actions. If the server names a code key that no pinned
key has signed for, join changes nothing and names both keys. Add --trust-code-key
DIGEST if the operators have confirmed the new key.

--trust-code-key refuses a server that names any other key. While the operators
rotate the key, give the flag twice.

With --puppet-certificate the machine needs no token. It proves who it is with the
certificate that the site's Puppet CA has signed, and its name is the certname. The
operators have told the server this CA (tutti server trust-ca), and that command prints
the values for --server and --pin. If an operator must approve the machine first, join
says so and ends with exit code 10. Run the same command again later.`,
		Example: `  tutti join --token-file token
  tutti join --puppet-certificate --server tutti.example.net:8150 --pin DIGEST
  tutti join --again < token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.howToJoin(cmd, &in, file, name, pin); err != nil {
				return err
			}
			for _, key := range in.CodeKeys {
				if err := tutti.Digest(key).Validate(); err != nil {
					return tutti.Wrap(tutti.CodeInvalid, err, "--trust-code-key")
				}
			}
			joined, err := o.deps.Join(cmd.Context(), in)
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), joined)
			}
			switch {
			case err != nil:
				return err
			case joined.Pending != "" && !o.json:
				fmt.Fprintf(cmd.OutOrStdout(), "An operator must approve this machine first: %s.\nThe operator sees it with: tutti node pending\n", joined.Pending)
				fallthrough
			case joined.Pending != "":
				return CommandExit(ExitDeferred)
			case o.json:
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Joined as %s.\n", joined.Node)
			if !in.Unit {
				fmt.Fprintf(cmd.OutOrStdout(), "Start the agent with: tutti agent --dir %s\n", in.Dir)
			}
			return writeFindings(cmd.ErrOrStderr(), joined.Found)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultAgentDir, "the agent's state directory")
	f.StringVar(&file, "token-file", "", "read the token from this file instead of standard input")
	f.StringVar(&name, "name", "", "the node's name (default: the token's, else this host's)")
	f.BoolVar(&in.Again, "again", false, "rejoin with the existing keys and data, after the server stopped accepting this node")
	f.StringSliceVar(&in.CodeKeys, "trust-code-key", nil, "trust the code-signing key with this digest, and refuse a server that names another; may be repeated")
	f.BoolVar(&in.ByCertificate, "puppet-certificate", false, "join with this machine's Puppet certificate instead of a token")
	f.StringVar(&pin, "pin", "", "with --puppet-certificate: the digest of the fleet's CA")
	f.StringVar(&in.Certificate, "certificate", "", "with --puppet-certificate: the file of the certificate (default: Puppet's hostcert)")
	f.StringVar(&in.PrivateKey, "private-key", "", "with --puppet-certificate: the file of the certificate's key (default: Puppet's hostprivkey)")
	f.BoolVar(&in.Unit, "unit", true, "install and start the systemd unit tutti-agent")
	rootFlag(f, &in.Root)
	return cmd
}

// The method `howToJoin` checks that the flags are either for a token or for a Puppet certificate, and fills in these
// fields.
func (o *options) howToJoin(cmd *cobra.Command, in *JoinNode, file, name, pin string) error {
	if !in.ByCertificate {
		for _, flag := range []string{"pin", "certificate", "private-key", "server"} {
			if cmd.Flags().Changed(flag) {
				return tutti.Errorf(tutti.CodeInvalid, "--%s belongs to --puppet-certificate; a token contains the server's address", flag)
			}
		}
		token, err := readToken(cmd.InOrStdin(), file)
		in.Token, in.Name = token, tutti.NodeName(name)
		return err
	}
	switch {
	case file != "" || name != "":
		return tutti.Errorf(tutti.CodeInvalid, "with --puppet-certificate, the certname is the node's name, and there is no token")
	case o.conn.Server == "" || pin == "":
		return tutti.Errorf(tutti.CodeInvalid, "--puppet-certificate needs --server HOST:PORT and --pin DIGEST; tutti server trust-ca prints both")
	case (in.Certificate == "") != (in.PrivateKey == ""):
		return tutti.Errorf(tutti.CodeInvalid, "give both --certificate and --private-key, or neither")
	}
	in.Server, in.Pin = o.conn.Server, tutti.Digest(pin)
	return nil
}

const maxToken = 8 << 10

// readToken reads a token from a file or from standard input. A token is never an argument, because everybody on the
// machine can see arguments.
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
