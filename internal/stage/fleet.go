package stage

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/lab"
)

// Paths on the hosts of a lab.
const (
	hostBinary   = "/usr/local/bin/tutti"
	hostOperator = "/root/operator"
)

// LabFleet is a fleet on the hosts of a lab. One host has the server, and each other host
// has an agent. Demo, tests and benchmarks use this type.
type LabFleet struct {
	Lab    *lab.Running
	Server *lab.Host
	Nodes  []*lab.Host
	// Conn is the connection by which this machine reaches the server as its first
	// operator.
	Conn   cli.Connection
	Client *httpapi.Client

	operator Operator
}

// Operator contains the functions by which a fleet's operator reaches the server.
type Operator interface {
	// ServerURL returns the URL of the server to which the connection belongs.
	ServerURL(conn cli.Connection) (string, error)
	// KeepServer writes the server's URL into an operator's directory. KeepServer is used if a
	// connection names no server.
	KeepServer(dir, url string) error
	// Connect returns a client of the server to which the connection belongs. The server need not be
	// reachable.
	Connect(conn cli.Connection) (*httpapi.Client, error)
	// Push signs code with the operator's key and sends it to s.
	Push(ctx context.Context, s cli.Server, conn cli.Connection, in cli.PushCode) (tutti.CodePushed, error)
}

// StartLabFleet installs the binary on every host, makes the server on the host
// serverHost, and joins all other hosts. StartLabFleet writes the operator's credentials
// to dir.
func StartLabFleet(ctx context.Context, operator Operator, running *lab.Running, serverHost, binary, dir string) (*LabFleet, error) {
	f := &LabFleet{operator: operator, Lab: running, Conn: cli.Connection{OperatorDir: filepath.Join(dir, "operator")}}
	var err error
	if f.Server, err = running.Host(serverHost); err != nil {
		return nil, err
	}
	for _, h := range running.Hosts {
		if h != f.Server {
			f.Nodes = append(f.Nodes, h)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, h := range running.Hosts {
		group.Go(func() error { return h.CopyIn(groupCtx, binary, hostBinary) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := f.startServer(ctx); err != nil {
		return nil, err
	}
	return f, f.join(ctx)
}

func (f *LabFleet) startServer(ctx context.Context) error {
	address := f.Server.Address.String()
	if _, err := Output(ctx, f.Server, nil, hostBinary, "--operator", hostOperator, "server", "init", "--unit", "--host", address, "--also", f.Server.Name); err != nil {
		return err
	}
	packed, err := Output(ctx, f.Server, nil, "tar", "-C", hostOperator, "-c", ".")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Conn.OperatorDir, 0o700); err != nil {
		return err
	}
	if err := untar(ctx, packed, f.Conn.OperatorDir); err != nil {
		return err
	}
	f.Conn.Server = "https://" + net.JoinHostPort(address, strings.TrimPrefix(cli.DefaultListen, ":"))
	if err := f.operator.KeepServer(f.Conn.OperatorDir, f.Conn.Server); err != nil {
		return err
	}
	f.Client, err = f.operator.Connect(f.Conn)
	return err
}

func untar(ctx context.Context, packed []byte, dir string) error {
	cmd := exec.CommandContext(ctx, "tar", "-C", dir, "--no-same-owner", "-x")
	cmd.Stdin = bytes.NewReader(packed)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpack the operator's credentials: %w: %s", err, out)
	}
	return nil
}

// The method `join` joins all nodes concurrently.
func (f *LabFleet) join(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range f.Nodes {
		group.Go(func() error { return f.Join(ctx, h) })
	}
	return group.Wait()
}

// Join joins a host that already has the binary.
func (f *LabFleet) Join(ctx context.Context, h *lab.Host) error {
	token, err := f.Client.CreateToken(ctx, api.CreateToken{Name: h.Name, TTL: time.Hour})
	if err != nil {
		return err
	}
	_, err = Output(ctx, h, []byte(token.Text), hostBinary, "join")
	return err
}

// The method `node` returns the first node whose name has the prefix.
func (f *LabFleet) node(prefix string) (*lab.Host, error) {
	i := slices.IndexFunc(f.Nodes, func(h *lab.Host) bool { return strings.HasPrefix(h.Name, prefix) })
	if i < 0 {
		return nil, tutti.Errorf(tutti.CodeNotFound, "no node of lab %q is called %s…", f.Lab.Name, prefix)
	}
	return f.Nodes[i], nil
}

// Output runs a command on a host and returns its standard output. The error contains the
// command's standard error.
func Output(ctx context.Context, h *lab.Host, stdin []byte, args ...string) ([]byte, error) {
	cmd := h.Command(ctx, args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s on %s: %w: %s", strings.Join(args[:min(len(args), 3)], " "), h.Name, err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}

// RunCold makes the agent of a node load Puppet again for every run, also after a
// reboot.
func (f *LabFleet) RunCold(ctx context.Context, h *lab.Host) error {
	return AddFlags(ctx, h, "tutti-agent", "--warm 0")
}

// AddFlags restarts a unit of a host with further flags. The unit also has these flags after a reboot.
func AddFlags(ctx context.Context, h *lab.Host, unit, flags string) error {
	_, err := Output(ctx, h, nil, "sh", "-euc", `sed -i "/^ExecStart=/s/$/ $2/" "$(systemctl show -P FragmentPath "$1")"
		systemctl daemon-reload
		systemctl restart "$1"`, "sh", unit, flags)
	return err
}

// DropFlags undoes AddFlags.
func DropFlags(ctx context.Context, h *lab.Host, unit, flags string) error {
	_, err := Output(ctx, h, nil, "sh", "-euc", `sed -i "/^ExecStart=/s/ $2$//" "$(systemctl show -P FragmentPath "$1")"
		systemctl daemon-reload
		systemctl restart "$1"`, "sh", unit, flags)
	return err
}
