// Package operator is the operator's side of the system. The package handles the operator's directory and keys, the
// connection to the server, pushing and signing code, signing actions, sealing secrets, and following rotations.
package operator

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// OperatorServerFile is the file in an operator's directory that contains the server's
// URL.
const OperatorServerFile = "server"

// ConnectOptions determine the server and the operator.
type ConnectOptions struct {
	Server      string // URL of the server; empty: use the URL in the operator's directory
	OperatorDir string
	Socket      string // the server's local socket; Connect uses it if the operator's directory has no credentials
}

// Connect returns a client of the server.
func Connect(o ConnectOptions) (*httpapi.Client, error) {
	bundle, err := identity.LoadOperator(o.OperatorDir)
	switch {
	case err == nil:
	case NoOperator(err):
		return ConnectLocal(o)
	default:
		return nil, err
	}
	if o.Server, err = o.ServerURL(); err != nil {
		return nil, err
	}
	// Store the fleet's id. Ignore an error: if the directory cannot be written, its CA cannot
	// change either, and the id can still be computed from the CA.
	_, _ = identity.KeepFleet(o.OperatorDir, bundle.Pin())
	// A server that loses its power does not close its connections. Without keep-alive, an operator who
	// watches a job would notice the loss only after minutes.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: askAfter, Interval: askEvery, Count: askTimes}}
	client := httpapi.NewClient(o.Server, &http.Client{Transport: httpapi.Transport(bundle.TLS(), dialer)})
	client.Witness = seenBy(o.OperatorDir)
	trusts, signer := bundle.StandsOn()
	f := &follower{dir: o.OperatorDir, name: bundle.Name, client: *client, stands: httpapi.Trust{Signer: signer, CAs: trusts}}
	client.Trust = f.follow
	return client, nil
}

// Who returns the name of the operator and the address of the server. On the local socket, the name is `root`.
func Who(o ConnectOptions) (name, server string) {
	bundle, err := identity.LoadOperator(o.OperatorDir)
	if err != nil {
		return "root", o.Socket
	}
	server, _ = o.ServerURL() // an error has ended Connect before
	return bundle.Name, server
}

// RenewDeadline is how long a renewal of an operator's certificate may take.
const RenewDeadline = 10 * time.Second

// While the server's keys are rotated, the server tells operators which keys to use (ADR 0027). follower changes the
// operator's directory to these keys, during any request of the operator. The follower tries each change once.
type follower struct {
	dir, name string
	client    httpapi.Client // a copy with an empty Trust, so that the copy does not call the follower

	mu     sync.Mutex
	stands httpapi.Trust // the keys that the directory uses, or has tried to use
}

func (f *follower) follow(ctx context.Context, should httpapi.Trust) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stands.Signer == should.Signer && slices.Equal(f.stands.CAs, should.CAs) {
		return
	}
	f.stands = should
	ctx, cancel := context.WithTimeoutCause(ctx, RenewDeadline, tutti.Errorf(tutti.CodeDeadline, "no answer within %s", RenewDeadline))
	defer cancel()
	if err := renewBy(ctx, f.dir, f.name, f.client.FollowRotation); err != nil {
		fmt.Fprintln(os.Stderr, "tutti: the server's keys are rotated, and the operator's credentials do not follow yet:", tutti.Visible(err.Error()))
	}
}

// NoOperator gets the error of identity.LoadOperator. It reports whether the error means that the
// directory has no credentials. For invalid credentials, NoOperator returns false.
func NoOperator(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || tutti.CodeOf(err) == tutti.CodeNotFound
}

// If a connection is silent for the time askAfter, the kernel sends a probe, and then another one
// each askEvery. After askTimes probes without an answer, the connection ends.
const (
	askAfter = 10 * time.Second
	askEvery = 5 * time.Second
	askTimes = 3
)

// ServerURL returns the URL of the server.
func (o ConnectOptions) ServerURL() (string, error) {
	if o.Server != "" {
		return o.Server, nil
	}
	raw, err := os.ReadFile(filepath.Join(o.OperatorDir, OperatorServerFile))
	return strings.TrimSpace(string(raw)), tutti.Wrap(tutti.CodeInvalid, err, "which server? give --server")
}

// ConnectLocal connects through the socket of a server on this machine.
func ConnectLocal(o ConnectOptions) (*httpapi.Client, error) {
	if _, err := os.Stat(o.Socket); err != nil {
		return nil, tutti.Errorf(tutti.CodeUnauthenticated,
			"no operator's credentials in %s and no server's socket %s here; give --operator DIR, or run this on the server as root", o.OperatorDir, o.Socket)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
	}}
	return httpapi.NewClient("http://tutti", &http.Client{Transport: transport}), nil
}

// RenewOperator replaces the operator's certificate by a certificate for a new key if at most a third of its life is
// left. RenewOperator does nothing if the certificate is missing or has ended. After a crash, the directory has
// either the old certificate and key or the new certificate and key.
func RenewOperator(ctx context.Context, o ConnectOptions, now time.Time) error {
	bundle, err := identity.LoadOperator(o.OperatorDir)
	if err != nil || now.Before(bundle.RenewAt()) || now.After(bundle.Expires()) {
		return nil //nolint:nilerr // Connect reports the error of the certificate
	}
	client, err := Connect(o)
	if err != nil {
		return err
	}
	return renewBy(ctx, o.OperatorDir, bundle.Name, client.RenewOperator)
}

// renewBy makes a new key, and replaces the operator's certificate and the CAs that come with
// it.
func renewBy(ctx context.Context, dir, name string, renew func(context.Context, []byte) (api.IssuedOperator, error)) error {
	key, err := identity.NewOperatorKey()
	if err != nil {
		return err
	}
	request, err := key.Request(name)
	if err != nil {
		return err
	}
	issued, err := renew(ctx, request)
	if err != nil {
		return err
	}
	renewed, err := key.Bundle(issued, nil)
	if err != nil {
		return err
	}
	return renewed.Replace(dir)
}

// handOn copies the data about code keys and operators from one operator's directory to another
// directory. So the new operator knows who signs, and does not have to believe the server.
func handOn(from, to string) error {
	if list, err := readOperators(from); err != nil {
		return err
	} else if list != nil {
		if err := WriteOperators(to, *list); err != nil {
			return err
		}
	}
	chain, err := readTrust(from)
	if err != nil || len(chain) == 0 {
		return err
	}
	return writeTrust(to, chain)
}

// CreateOperator issues an operator's certificate and writes the credentials.
func CreateOperator(ctx context.Context, s cli.Server, c cli.Connection, in cli.OperatorCreate) (api.IssuedOperator, error) {
	var issued api.IssuedOperator
	codeKey, err := codeKeyFor(c, in)
	if err != nil {
		return issued, err
	}
	ask := func(request []byte) error {
		issued, err = s.IssueOperator(ctx, api.IssueOperator{Operator: in.Name, Request: request, CodeKey: in.CodeKey, Follows: true})
		return err
	}
	fleet, err := fleetOf(ctx, s, c)
	if err != nil {
		return issued, err
	}
	if len(in.Request) > 0 {
		if err := ask(in.Request); err != nil {
			return issued, err
		}
		if err := identity.WriteIssued(in.Out, issued); err != nil {
			return issued, err
		}
		if err := HandOnRecovery(c.OperatorDir, in.Out); err != nil {
			return issued, err
		}
		return issued, writeFleet(in.Out, issued.Server, fleet)
	}
	key, err := identity.NewOperatorKey()
	if err != nil {
		return issued, err
	}
	request, err := key.Request(in.Name)
	if err != nil {
		return issued, err
	}
	if err := identity.ValidateNewDir(in.Out); err != nil {
		return issued, err // check this first, so that the server does not issue a certificate that cannot be stored
	}
	if err := ask(request); err != nil {
		return issued, err
	}
	bundle, err := key.Bundle(issued, codeKey)
	if err != nil {
		return issued, err
	}
	if err := bundle.Write(in.Out); err != nil {
		return issued, err
	}
	if codeKey != nil {
		if err := handOn(c.OperatorDir, in.Out); err != nil {
			return issued, err
		}
	}
	if err := HandOnRecovery(c.OperatorDir, in.Out); err != nil {
		return issued, err
	}
	return issued, writeFleet(in.Out, issued.Server, fleet)
}

// HandOnRecovery copies the public half of the recovery key to another operator's directory. So the
// other operator knows this key when they seal secrets, and does not have to believe the server.
func HandOnRecovery(from, to string) error {
	known, err := loadPins(cli.Connection{OperatorDir: from})
	if err != nil {
		return err
	}
	if public, err := (Sealer{}).Recovery(cli.Connection{OperatorDir: from}); err == nil {
		known.Recovery = public
	}
	own, err := loadPins(cli.Connection{OperatorDir: to})
	if err != nil || known.Recovery == "" || own.Recovery != "" {
		return err
	}
	own.Recovery = known.Recovery
	return own.save(cli.Connection{OperatorDir: to})
}

// fleetOf returns the id of the fleet to which an operator belongs. On the local socket, fleetOf returns
// the id that the server names. The id is empty if the server is of release 0.2.0 or earlier.
func fleetOf(ctx context.Context, s cli.Server, c cli.Connection) (tutti.Digest, error) {
	if own, err := identity.LoadOperator(c.OperatorDir); err == nil {
		return identity.KeepFleet(c.OperatorDir, own.Pin())
	}
	said, err := s.Signing(ctx)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return "", nil
	}
	return said.Fleet, err
}

// writeFleet stores the server's URL and the fleet's id in a new operator's directory.
func writeFleet(dir, url string, fleet tutti.Digest) error {
	if err := WriteServer(dir, url); err != nil || fleet == "" {
		return err
	}
	_, err := identity.KeepFleet(dir, fleet)
	return err
}

// codeKeyFor returns the code-signing key if the new operator should get it.
func codeKeyFor(c cli.Connection, in cli.OperatorCreate) (ed25519.PrivateKey, error) {
	if !in.CodeKey {
		return nil, nil
	}
	if len(in.Request) > 0 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "--code-key with --request: the certificate cannot carry the code-signing key; copy code.key from %s, if you want this", c.OperatorDir)
	}
	own, err := identity.LoadOperator(c.OperatorDir)
	if err != nil {
		return nil, tutti.Wrap("", err, "the code-signing key")
	}
	if own.CodeKey == nil {
		return nil, tutti.Errorf(tutti.CodeRefused, "operator %s cannot give a code-signing key, because %s has none", own.Name, c.OperatorDir)
	}
	return own.CodeKey, nil
}

// WriteServer stores the URL of the server in an operator's directory.
func WriteServer(dir, url string) error {
	return durable.WriteFile(filepath.Join(dir, OperatorServerFile), []byte(url+"\n"), 0o600)
}

// RequestOperator makes a key in dir and returns a request for its certificate.
func RequestOperator(name, dir string) ([]byte, error) {
	key, err := identity.NewOperatorKey()
	if err != nil {
		return nil, err
	}
	request, err := key.Request(name)
	if err != nil {
		return nil, err
	}
	return request, key.WriteKey(dir)
}
