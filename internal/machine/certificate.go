package machine

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// PuppetIdentity says where the fleet's server is, and with which Puppet certificate a machine joins.
type PuppetIdentity struct {
	Server string       // host:port of the operators' port, or its URL
	Pin    tutti.Digest // digest of the fleet's CA, see identity.Authority.Pin
	// Certificate and PrivateKey are the files of the machine's Puppet certificate and of its key.
	Certificate, PrivateKey string
}

// errPending says that an operator must approve the machine first. The text is the server's reason.
type errPending string

func (e errPending) Error() string { return string(e) }

// JoinByCertificate is like Join, but the proof is the machine's Puppet certificate (ADR 0031). The fields Token and
// Name of the options must be empty. If an operator must approve the machine first, `pending` is the reason and there
// is no error. The machine then keeps the keys that it has made, and asks again with them.
func JoinByCertificate(ctx context.Context, o JoinOptions, by PuppetIdentity) (name tutti.NodeName, pending string, err error) {
	if err := by.Pin.Validate(); err != nil {
		return "", "", tutti.Wrap(tutti.CodeInvalid, err, "the digest of the fleet's CA")
	}
	address := strings.TrimSuffix(strings.TrimPrefix(by.Server, "https://"), "/")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", "", tutti.Wrap(tutti.CodeInvalid, err, "the server's address %q", by.Server)
	}
	certificate, err := os.ReadFile(by.Certificate)
	if err != nil {
		return "", "", tutti.Wrap(tutti.CodeInvalid, err, "Puppet's certificate of this machine")
	}
	key, err := os.ReadFile(by.PrivateKey)
	if err != nil {
		return "", "", tutti.Wrap(tutti.CodeInvalid, err, "the private key of Puppet's certificate")
	}
	if err := identity.CheckPuppetFiles(certificate, key); err != nil { // a private key must not leave the machine by mistake
		return "", "", tutti.Wrap(tutti.CodeInvalid, err, "%s and %s", by.Certificate, by.PrivateKey)
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	name, err = join(o, func(node identity.NodeIdentity, _ tutti.NodeName) (identity.EnrolResponse, error) {
		dial := tls.Dialer{Config: identity.PinnedTLS(by.Pin)}
		c, err := dial.DialContext(ctx, "tcp", address)
		if err != nil {
			if tutti.CodeOf(err) == tutti.CodeInternal {
				err = tutti.Wrap(tutti.CodeUnavailable, err, "the server %s", address)
			}
			return identity.EnrolResponse{}, err
		}
		defer c.Close()
		state := c.(*tls.Conn).ConnectionState()
		binding, err := identity.Binding(&state)
		if err != nil {
			return identity.EnrolResponse{}, err
		}
		req := identity.JoinRequest{Certificate: string(certificate), Key: node.Key, BoxKey: node.BoxKey()}
		if err := req.Sign(binding, node.Seed, key); err != nil {
			return identity.EnrolResponse{}, err
		}
		first := true
		client := httpapi.NewClient("https://"+address, &http.Client{Transport: &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
				if !first { // the request is valid only on the first connection
					return nil, tutti.Errorf(tutti.CodeUnavailable, "the connection to the server ended")
				}
				first = false
				return c, nil
			},
		}})
		answer, err := client.EnrolByCertificate(ctx, api.JoinRequest{
			Certificate: req.Certificate, Key: req.Key, BoxKey: req.BoxKey, Signature: req.Signature, Proof: req.Proof,
		})
		switch {
		case err != nil:
			return identity.EnrolResponse{}, err
		case answer.Enrolled == nil:
			return identity.EnrolResponse{}, errPending(answer.Pending)
		}
		return identity.EnrolResponse(*answer.Enrolled), nil
	})
	if why, waits := err.(errPending); waits { //nolint:errorlint // the function `join` returns the error unchanged
		return "", string(why), nil
	}
	return name, "", err
}
