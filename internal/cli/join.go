package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newServerTrustCACommand(o *options) *cobra.Command {
	var in api.SetJoinCA
	var crl string
	cmd := &cobra.Command{
		Use:   "trust-ca [FILE]",
		Short: "Trust the site's Puppet CA: its machines can join",
		Long: `Tells the server the Puppet CA of the site. FILE has the CA's certificates in PEM: the
root and all CAs below it. On a Puppet Server this is
/etc/puppetlabs/puppetserver/ca/ca_crt.pem. The CRL ca_crl.pem is in the same directory.

A machine then joins with its Puppet certificate (tutti join --puppet-certificate).
The rules below "join" in the fleet file say which machines join at once. The others
wait for "tutti node approve".

The server refuses all these joins when a CRL has ended. Run the command again whenever
the CRL changes, for example from cron. The command names the nodes whose certificate
the CRL revokes. They stay in the fleet until you run: tutti node remove NODE

Without FILE the command shows the CA that the server knows.`,
		Example: `  tutti server trust-ca ca_crt.pem --crl ca_crl.pem
  tutti server trust-ca
  tutti server trust-ca --remove`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			if len(args) == 0 && !in.Remove {
				if crl != "" || in.NoCRL {
					return tutti.Errorf(tutti.CodeInvalid, "give the file of the CA, too")
				}
				view, err := server.ShowJoinCA(cmd.Context())
				if err != nil {
					return err
				}
				return o.printJoinCA(cmd, view)
			}
			question := "end joins with Puppet certificates"
			if len(args) > 0 {
				question = "let machines with certificates of the CA in " + args[0] + " join"
				if in.CA, err = readPublic(args[0]); err != nil {
					return err
				}
			}
			if crl != "" {
				if in.CRL, err = readPublic(crl); err != nil {
					return err
				}
			}
			if err := o.confirm(cmd, question); err != nil {
				return err
			}
			view, err := server.SetJoinCA(cmd.Context(), in)
			if err != nil {
				return err
			}
			return o.printJoinCA(cmd, view)
		},
	}
	f := cmd.Flags()
	f.StringVar(&crl, "crl", "", "the file with the CRLs of the CAs")
	f.BoolVar(&in.NoCRL, "no-crl", false, "the site has no CRL: a revoked certificate still lets a machine join")
	f.BoolVar(&in.Remove, "remove", false, "forget the CA: no machine joins with a certificate any more")
	o.addYes(cmd)
	return cmd
}

// readPublic reads a file that the command sends to the server. It refuses a file with a private key.
func readPublic(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err == nil && strings.Contains(string(raw), "PRIVATE KEY-----") {
		return "", tutti.Errorf(tutti.CodeInvalid, "%s contains a private key, which must not leave its machine; nothing was sent", path)
	}
	return string(raw), tutti.Wrap(tutti.CodeInvalid, err, "read the file")
}

func (o *options) printJoinCA(cmd *cobra.Command, view api.JoinCAView) error {
	if o.json {
		return printJSON(cmd.OutOrStdout(), view)
	}
	out := cmd.OutOrStdout()
	if len(view.Subjects) == 0 {
		fmt.Fprintln(out, "No machine may join with a Puppet certificate: the server knows no CA.")
		return nil
	}
	fmt.Fprintf(out, "CA: %s, until %s\n", strings.Join(view.Subjects, ", "), day(view.Ends))
	switch {
	case !view.HasCRL:
		fmt.Fprintln(out, "CRL: none. A revoked certificate still lets a machine join.")
	case view.CRLEnds.IsZero():
		fmt.Fprintln(out, "CRL: without an end")
	default:
		fmt.Fprintf(out, "CRL: until %s\n", day(view.CRLEnds))
	}
	fmt.Fprintf(out, "A machine joins with:\n  tutti join --puppet-certificate --server %s --pin %s\n", view.Server, view.Pin)
	if len(view.Revoked) > 0 {
		fmt.Fprintf(out, "The CRL revokes the certificates of nodes that are still in the fleet: %s\nTo remove a node: tutti node remove NODE\n", joined(view.Revoked))
	}
	return nil
}

func newNodePendingCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "pending",
		Short: "List the machines that wait for approval to join",
		Long: `Lists the machines that have a certificate of the site's Puppet CA, but that no rule
below "join" in the fleet file lets in. Approve or reject each of them.`,
		Example: "  tutti node pending",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			all, err := server.ListPending(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), all)
			}
			var rows [][]string
			for _, p := range all {
				state := "waits"
				switch {
				case p.Rejected:
					state = "rejected"
				case p.Approved:
					state = "approved"
					if len(p.Groups) > 0 {
						state += " for " + joined(p.Groups)
					}
				}
				rows = append(rows, []string{string(p.Node), state, p.At.Local().Format(time.DateTime), p.Certificate.Serial, extensionText(p.Certificate.Extensions), p.Why})
			}
			return table(cmd.OutOrStdout(), "NODE\tSTATE\tSINCE\tSERIAL\tEXTENSIONS\tWHY", rows)
		},
	}
}

// plainValue matches the values of extensions that are shown without quotes.
var plainValue = regexp.MustCompile(`^[\w.:/@+-]+$`)

// extensionText returns the trusted extensions in one line. A value with other characters is in quotes, so that it cannot
// look like another extension.
func extensionText(extensions map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		value := extensions[name]
		if !plainValue.MatchString(value) {
			value = strconv.Quote(value)
		}
		out = append(out, name+"="+value)
	}
	return cmp.Or(strings.Join(out, " "), "-")
}

func newNodeApproveCommand(o *options) *cobra.Command {
	var groups []string
	var serial string
	cmd := &cobra.Command{
		Use:   "approve NODE",
		Short: "Approve a machine that wants to join",
		Long: `Lets a machine join with its Puppet certificate (see tutti node pending). The machine
joins when it asks the next time. The approval is for this certificate's key only. If
machines with different certificates ask under one name, --serial chooses one.`,
		Example: "  tutti node approve web-01.example.net --group web",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			in := api.ApproveNode{Node: tutti.NodeName(args[0]), Serial: serial}
			for _, g := range groups {
				in.Groups = append(in.Groups, tutti.GroupName(g))
			}
			if err := server.ApproveNode(cmd.Context(), in); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("Node %s joins when it asks the next time.\n", in.Node), map[string]any{"node": in.Node, "groups": in.Groups, "change": "approve"})
		},
	}
	cmd.Flags().StringSliceVar(&groups, "group", nil, "a group with joined: true for the node (repeatable)")
	cmd.Flags().StringVar(&serial, "serial", "", "the serial number of the certificate")
	return cmd
}

func newNodeRejectCommand(o *options) *cobra.Command {
	var serial string
	cmd := &cobra.Command{
		Use:   "reject NODE",
		Short: "Reject a machine that wants to join with its Puppet certificate",
		Long: `Refuses a machine that waits for approval (see tutti node pending), until you approve it.
If machines with different certificates ask under one name, --serial chooses one.`,
		Example: "  tutti node reject web-01.example.net",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			in := api.RejectNode{Node: tutti.NodeName(args[0]), Serial: serial}
			if err := server.RejectNode(cmd.Context(), in); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("Node %s is rejected. To let it join later: tutti node approve %s\n", in.Node, in.Node), map[string]any{"node": in.Node, "change": "reject"})
		},
	}
	cmd.Flags().StringVar(&serial, "serial", "", "the serial number of the certificate")
	return cmd
}
