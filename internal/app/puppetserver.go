package app

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/machine"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

// compileSocketPath is the socket to which the module on a Puppet Server connects. The socket is not in
// /run/tutti, because systemd removes that directory when a tutti-server on the same host stops.
const compileSocketPath = "/run/tutti-agent/compile.sock"

// serverModules are the directories for modules of all environments, in Puppet's own packages and in
// Debian's packages.
var serverModules = []string{"/etc/puppetlabs/code", "/etc/puppet/code"}

// compileHost is the content of machine.CompileFile.
type compileHost struct {
	Socket string `json:"socket"`
	User   string `json:"user"`
}

// installPuppetServer copies the module and stores the user for whom the agent opens its socket.
func installPuppetServer(o cli.PuppetServerInstall) (cli.PuppetServerInstalled, error) {
	var out cli.PuppetServerInstalled
	if _, err := machine.LoadMembership(machine.IdentityDir(o.Dir)); err != nil {
		return out, tutti.Wrap("", err, "the Puppet Server must be a node: let it join first")
	}
	if _, _, err := account(o.User); err != nil {
		return out, err
	}
	if o.Modules == "" {
		for _, code := range serverModules {
			if _, err := os.Stat(code); err == nil {
				o.Modules = filepath.Join(code, "modules")
				break
			}
		}
	}
	if o.Modules == "" {
		return out, tutti.Errorf(tutti.CodeNotFound, "no code directory of a Puppet Server was found here (%v); name the directory of its shared modules with --modules", serverModules)
	}
	out = cli.PuppetServerInstalled{Module: filepath.Join(o.Modules, "tutti"), Socket: compileSocketPath, User: o.User}
	if err := copyModule(out.Module); err != nil {
		return out, tutti.Wrap("", err, "install the module")
	}
	raw, err := json.Marshal(compileHost{Socket: out.Socket, User: out.User})
	if err != nil {
		return out, err
	}
	return out, durable.WriteFile(filepath.Join(o.Dir, machine.CompileFile), raw, 0o600)
}

// copyModule replaces a directory by the module. Everybody may read the copy.
func copyModule(dir string) error {
	fresh, old := dir+".new", dir+".old"
	for _, rest := range []string{fresh, old} {
		if err := os.RemoveAll(rest); err != nil {
			return err
		}
	}
	if err := makeModules(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.CopyFS(fresh, puppetmodule.FS()); err != nil {
		return err
	}
	if err := filepath.WalkDir(fresh, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Chmod(path, 0o755) // the Puppet Server reads the module and sends it to all nodes
		}
		return os.Chmod(path, 0o644)
	}); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// makeModules creates the directory for modules. Everybody may read the directory, even with a strict
// umask. makeModules does not change an existing directory.
func makeModules(dir string) error {
	if durable.Exists(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // the Puppet Server must be able to read the directory
}

// compileSocket returns the socket on which the agent answers a Puppet Server. compileSocket returns nil if
// no Puppet Server was set up on this host.
func compileSocket(dir string) (*agent.CompileSocket, error) {
	path := filepath.Join(dir, machine.CompileFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var host compileHost
	if err == nil {
		err = json.Unmarshal(raw, &host)
	}
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "%s; write the file again with: tutti puppet-server install", path)
	}
	uid, gid, err := account(host.User)
	if err != nil {
		return nil, err
	}
	return &agent.CompileSocket{Path: host.Socket, UID: uid, GID: gid}, nil
}

func account(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, tutti.Wrap(tutti.CodeNotFound, err, "the user of the Puppet Server")
	}
	if uid, err = strconv.Atoi(u.Uid); err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err
}
