package app

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// operatorServerFile is in an operator's directory and holds the server's URL.
const operatorServerFile = "server"

// ConnectOptions say which server an operator means and who the operator is.
type ConnectOptions struct {
	Server      string // URL; empty: what the operator's directory says
	OperatorDir string
	Socket      string // the local way, taken if there is no operator's directory
}

// Connect returns a client of the server.
func Connect(o ConnectOptions) (*httpapi.Client, error) {
	bundle, err := identity.LoadOperator(o.OperatorDir)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) || tutti.CodeOf(err) == tutti.CodeNotFound:
		return connectLocal(o)
	default:
		return nil, err
	}
	if o.Server == "" {
		raw, err := os.ReadFile(filepath.Join(o.OperatorDir, operatorServerFile))
		if err != nil {
			return nil, tutti.Wrap(tutti.CodeInvalid, err, "which server? give --server")
		}
		o.Server = strings.TrimSpace(string(raw))
	}
	transport := &http.Transport{TLSClientConfig: bundle.TLS(), ForceAttemptHTTP2: true}
	return httpapi.NewClient(o.Server, &http.Client{Transport: transport}), nil
}

// connectLocal goes through the socket of a server on this machine.
func connectLocal(o ConnectOptions) (*httpapi.Client, error) {
	if _, err := os.Stat(o.Socket); err != nil {
		return nil, tutti.Errorf(tutti.CodeUnauthenticated,
			"no operator's credentials in %s and no server's socket %s here; give --operator DIR, or run this on the server as root", o.OperatorDir, o.Socket)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
	}}
	return httpapi.NewClient("http://tutti", &http.Client{Transport: transport}), nil
}

// SignManifest signs a manifest with the operator's code-signing key.
func SignManifest(operatorDir, environment string, manifest []byte) ([]byte, error) {
	bundle, err := identity.LoadOperator(operatorDir)
	if err != nil {
		return nil, err
	}
	if bundle.CodeKey == nil {
		return nil, tutti.Errorf(tutti.CodeRefused, "operator %s has no code-signing key in %s", bundle.Name, operatorDir)
	}
	return identity.SignManifest(bundle.CodeKey, environment, manifest), nil
}
