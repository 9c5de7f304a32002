package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Sealer seals secrets on the operator's machine. The server never gets an unsealed secret.
type Sealer interface {
	// Init makes the recovery key in the operator's directory and returns its public key. If the key exists already,
	// Init returns CodeConflict.
	Init(c Connection) (public string, err error)
	// Recovery returns the public key of the recovery key. Recovery returns CodeNotFound if there is no recovery
	// key.
	Recovery(c Connection) (public string, err error)
	// Seal gives the key `key` a new secret, and seals the secret to the targets. If this operator has never sealed
	// to one of the nodes before, Seal first calls the function `ask`. If `ask` returns an error, nothing is sealed.
	Seal(ctx context.Context, s Server, c Connection, key string, targets []string, value json.RawMessage, ask func(SealedFor) error) (SealedFor, error)
	// Reseal seals a secret to the nodes that do not have it yet. If `targets` is not empty, Reseal first makes
	// them the targets of the secret. Like Seal, Reseal calls the function `ask`.
	Reseal(ctx context.Context, s Server, c Connection, secret api.SecretView, targets []string, ask func(SealedFor) error) (SealedFor, error)
	// Trust makes the operator trust the keys that these nodes have now, according to the server.
	Trust(ctx context.Context, s Server, c Connection, nodes []tutti.NodeName, recovery bool) error
}

// SealedFor contains the nodes to which a command has sealed a secret, and the nodes that have not joined yet.
type SealedFor struct {
	Key     string            `json:"key"`
	For     []string          `json:"for"`
	Nodes   []tutti.NodeName  `json:"nodes"`
	Absent  []tutti.NodeName  `json:"absent,omitempty"`
	Unknown []tutti.GroupName `json:"unknown,omitempty"` // groups that are no longer in the fleet file
	First   []tutti.NodeName  `json:"first,omitempty"`   // nodes to which this operator has never sealed before
	// Recovery is the recovery key in the fleet file. Recovery is set if two things are true: the key was
	// not made in this operator's directory, and this operator seals to the key for the first time.
	Recovery string `json:"recovery,omitempty"`
}

func newSecretCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Seal values to nodes, so that nobody else can read them",
		Long: `A secret is a value that is sealed to nodes before it leaves this machine. The server,
the backups and all other nodes have only the sealed form. On its nodes Puppet gets
the value as Sensitive. Set a secret with:

  tutti data set --secret KEY --for group:web --string < FILE`,
	}
	cmd.AddCommand(newSecretInitCommand(o), newSecretListCommand(o), newSecretResealCommand(o), newSecretRotateCommand(o), newSecretTrustCommand(o))
	return cmd
}

func newSecretInitCommand(o *options) *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the recovery key of the fleet's secrets, once",
		Long: `Each secret is sealed to its nodes and to the recovery key. The recovery
key is needed to seal the secret to nodes that come later. The command writes the
recovery key to the operator's directory (recovery.key). Its public half goes into the
fleet file.

Give a copy to the operators who set secrets. Keep another copy on another machine or
medium. Without the key you have to set each secret again. Never keep the key on the
server.`,
		Example: "  tutti secret init",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			do := o.deps.Sealer.Init
			if show {
				do = o.deps.Sealer.Recovery
			}
			public, err := do(o.conn)
			if err != nil {
				return err
			}
			text := "Write this line into the fleet file, and push it:\n\nsecrets: {recovery: " + public + "}\n"
			return o.done(cmd, text, map[string]any{"recovery": public})
		},
	}
	cmd.Flags().BoolVar(&show, "show", false, "print the line of the existing key")
	return cmd
}

func newSecretListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List secrets: their nodes, and which to reseal or to rotate",
		Long: `WAITING lists nodes that should have the secret and do not have it yet. Run
"tutti secret reseal" for them.

TO ROTATE lists nodes that may know the value although the secret is no longer for them.
TO ROTATE also lists nodes whose former machine may know the value. Run "tutti secret
rotate" to give the secret another value.`,
		Example: "  tutti secret list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			secrets, err := server.ListSecrets(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), secrets)
			}
			var rows [][]string
			for _, s := range secrets {
				rows = append(rows, []string{s.Key, strings.Join(s.For, " "), fmt.Sprint(len(s.Sealed)), orDash(some(s.Waiting)), orDash(some(toRotate(s))), s.By, ago(s.At, time.Now())})
			}
			return table(cmd.OutOrStdout(), "KEY\tFOR\tSEALED TO\tWAITING\tTO ROTATE\tBY\tSET", rows)
		},
	}
}

// toRotate returns the nodes because of which a secret should get another value.
func toRotate(s api.SecretView) []tutti.NodeName {
	out := slices.Clone(s.Former)
	for _, node := range s.Replaced {
		out = append(out, node+" (replaced)")
	}
	return out
}

func newSecretResealCommand(o *options) *cobra.Command {
	var targets []string
	cmd := &cobra.Command{
		Use:   "reseal [KEY...]",
		Short: "Seal secrets to the nodes that lack them",
		Long: `Seals secrets to nodes that have joined since the secrets were set.
Without KEY, the command seals all secrets. The command needs the recovery key. If you
seal to a node for the first time, the command names the node and asks. Nodes that have
the secret already do not run again.

--for changes the targets of one secret.`,
		Example: `  tutti secret reseal
  tutti secret reseal shared/app/token --for group:web`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(targets) > 0 && len(args) != 1 {
				return tutti.Errorf(tutti.CodeInvalid, "--for changes one secret: name its KEY")
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			secrets, err := server.ListSecrets(cmd.Context())
			if err != nil {
				return err
			}
			for _, key := range args {
				if !slices.ContainsFunc(secrets, func(s api.SecretView) bool { return s.Key == key }) {
					return tutti.Errorf(tutti.CodeNotFound, "no secret %q; see: tutti secret list", key)
				}
			}
			slices.Sort(targets)
			targets = slices.Compact(targets)
			done, failed := []SealedFor{}, error(nil)
			for _, s := range secrets {
				if len(args) > 0 && !slices.Contains(args, s.Key) || len(args) == 0 && len(s.Waiting) == 0 {
					continue
				}
				sealed, err := o.deps.Sealer.Reseal(cmd.Context(), server, o.conn, s, targets, o.askFirst(cmd))
				if err != nil { // continue with the other secrets
					failed = errors.Join(failed, err)
					continue
				}
				if done = append(done, sealed); !o.json {
					fmt.Fprintln(cmd.OutOrStdout(), sealedText(sealed))
				}
			}
			if o.json {
				return errors.Join(failed, printJSON(cmd.OutOrStdout(), done))
			}
			if len(done) == 0 && failed == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "each secret is sealed to all of its nodes")
			}
			return failed
		},
	}
	addFor(cmd, &targets, "make these the targets")
	o.addYes(cmd)
	return cmd
}

// askFirst returns the function `ask` of a Sealer. It asks the operator whether to seal a secret to nodes or to a
// recovery key for the first time.
func (o *options) askFirst(cmd *cobra.Command) func(SealedFor) error {
	return func(s SealedFor) error {
		var to []string
		if len(s.First) > 0 {
			to = append(to, fmt.Sprintf("%s for the first time (%s)", count(len(s.First), "node"), strings.Join(plain(s.First), ", ")))
		}
		if s.Recovery != "" {
			to = append(to, fmt.Sprintf("the recovery key of the fleet file for the first time (%s)", s.Recovery))
		}
		return o.confirm(cmd, fmt.Sprintf("seal %s to %s", s.Key, strings.Join(to, " and ")))
	}
}

func addFor(cmd *cobra.Command, targets *[]string, what string) {
	cmd.Flags().StringSliceVar(targets, "for", nil, what+": group:NAME or node:NAME; may be repeated")
}

func sealedText(s SealedFor) string {
	text := fmt.Sprintf("sealed %s to %s", s.Key, count(len(s.Nodes), "node"))
	if len(s.Nodes) > 0 {
		text += " (" + some(s.Nodes) + ")"
	}
	text += " of " + strings.Join(s.For, " ")
	if len(s.First) > 0 {
		text += "; for the first time to: " + some(s.First)
	}
	if len(s.Unknown) > 0 {
		text += "; not in the fleet file any more: " + some(s.Unknown) + " (tutti secret reseal KEY --for …)"
	}
	if len(s.Absent) > 0 {
		text += "; not joined yet: " + some(s.Absent) + " (then: tutti secret reseal)"
	}
	return text
}

func newSecretRotateCommand(o *options) *cobra.Command {
	var asString bool
	cmd := &cobra.Command{
		Use:   "rotate KEY",
		Short: "Set another value of a secret, for the same nodes",
		Long: `Reads another value from standard input and seals it to the nodes of the secret. In a
reactive fleet this starts runs on the nodes that read the secret.`,
		Example: "  tutti secret rotate shared/app/token --string < token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			secrets, err := server.ListSecrets(cmd.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(secrets, func(s api.SecretView) bool { return s.Key == args[0] })
			switch {
			case i < 0:
				return tutti.Errorf(tutti.CodeNotFound, "no secret %q; see: tutti secret list", args[0])
			case secrets[i].Owner != "":
				return tutti.Errorf(tutti.CodeConflict, "secret %q is published by node %s: a run of that node makes a new value", args[0], secrets[i].Owner)
			}
			return o.setSecret(cmd, server, args[0], secrets[i].For, asString)
		},
	}
	cmd.Flags().BoolVar(&asString, "string", false, "the value is a string, not JSON")
	o.addYes(cmd)
	return cmd
}

// setSecret reads a secret and seals it. If many nodes would run, setSecret asks first.
func (o *options) setSecret(cmd *cobra.Command, server Server, key string, targets []string, asString bool) error {
	slices.Sort(targets)
	targets = slices.Compact(targets)
	if err := tutti.ValidateTargets(targets); err != nil {
		return err
	}
	value, err := secretOf(cmd, asString)
	if err != nil {
		return err
	}
	if !o.yes {
		effect, err := server.SecretEffect(cmd.Context(), api.SecretEffectQuery{Key: key, For: targets})
		if err != nil {
			return err
		}
		if wide(effect) {
			if err := o.confirm(cmd, "set the secret "+key+": "+effectLine(effect)); err != nil {
				return err
			}
		}
	}
	sealed, err := o.deps.Sealer.Seal(cmd.Context(), server, o.conn, key, targets, value, o.askFirst(cmd))
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), sealed)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s (%s)\n", sealedText(sealed), kindOf(value))
	return err
}

// secretOf reads a secret from standard input. On a terminal, secretOf reads a string without showing it. Errors
// never contain the secret.
func secretOf(cmd *cobra.Command, asString bool) (json.RawMessage, error) {
	if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "the secret, a string (not shown): ")
		raw, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		return json.Marshal(string(raw))
	}
	raw, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxValueInput))
	switch {
	case err != nil:
		return nil, err
	case len(bytes.TrimSuffix(raw, []byte("\n"))) == 0:
		return nil, tutti.Errorf(tutti.CodeInvalid, "standard input is empty, but must contain the value")
	case !utf8.Valid(raw):
		return nil, tutti.Errorf(tutti.CodeInvalid, "standard input is not UTF-8 text: encode it (base64), and decode it in the code")
	}
	if asString {
		return json.Marshal(string(bytes.TrimSuffix(raw, []byte("\n"))))
	}
	if !json.Valid(raw) || string(bytes.TrimSpace(raw)) == "null" {
		return nil, tutti.Errorf(tutti.CodeInvalid, "standard input is not a JSON value; for a plain string add --string")
	}
	return bytes.TrimSpace(raw), nil
}

// kindOf returns the type of a value. The text contains no part of the value.
func kindOf(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "a string"
	case '{':
		return "a hash"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

func newSecretTrustCommand(o *options) *cobra.Command {
	var recovery bool
	cmd := &cobra.Command{
		Use:   "trust [NODE...]",
		Short: "Trust the new keys of nodes, after their machines were replaced",
		Long: `If a node's key has changed since this operator sealed to the node, all
commands refuse to seal to it. Otherwise a server that an attacker has taken over could
name its own key. After a machine was replaced, this command trusts the node's present key.`,
		Example: "  tutti secret trust web-01",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !recovery {
				return tutti.Errorf(tutti.CodeInvalid, "name a NODE, or --recovery")
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			var nodes []tutti.NodeName
			for _, arg := range args {
				nodes = append(nodes, tutti.NodeName(arg))
			}
			if err := o.deps.Sealer.Trust(cmd.Context(), server, o.conn, nodes, recovery); err != nil {
				return err
			}
			return o.done(cmd, "", map[string]any{"nodes": nodes, "recovery": recovery})
		},
	}
	cmd.Flags().BoolVar(&recovery, "recovery", false, "trust the recovery key of the fleet file")
	return cmd
}
