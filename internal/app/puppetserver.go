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

// compileSocketPath is the socket that the module on a Puppet Server asks. It is not in /run/tutti, because
// that directory is removed whenever a tutti-server on the same host stops.
const compileSocketPath = "/run/tutti-agent/compile.sock"

// serverModules are the directories under which the modules of all environments are, in Puppet's own
// packages and in Debian's.
var serverModules = []string{"/etc/puppetlabs/code", "/etc/puppet/code"}

// compileHost is the content of machine.CompileFile.
type compileHost struct {
	Socket string `json:"socket"`
	User   string `json:"user"`
}

// installPuppetServer copies the module and notes for which user the agent opens its
// socket.
func installPuppetServer(o cli.PuppetServerInstall) (cli.PuppetServerInstalled, error) {
	var out cli.PuppetServerInstalled
	if _, err := machine.LoadMembership(machine.IdentityDir(o.Dir)); err != nil {
		return out, tutti.Wrap("", err, "the Puppet Server has to be a node: join it first")
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
		return out, tutti.Errorf(tutti.CodeNotFound, "no Puppet Server's code directory here (%v); say where its shared modules are with --modules", serverModules)
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

// copyModule replaces a directory by the module, readable by everybody.
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
			return os.Chmod(path, 0o755) // the Puppet Server reads it, and serves it to all nodes
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

// makeModules makes the directory of the modules, readable by everybody with any
// umask. It leaves an existing directory alone.
func makeModules(dir string) error {
	if durable.Exists(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // the Puppet Server reads it
}

// compileSocket returns the socket on which the agent answers a Puppet Server; nil:
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
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "%s; write it anew with: tutti puppet-server install", path)
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
