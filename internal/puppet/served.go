package puppet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tutti-project/tutti"
)

const (
	// serverUser is the user of a Puppet Server in all packages.
	serverUser = "puppet"
	// maxServed bounds one line of puppet-tutti --served: a catalog for a comparison.
	maxServed = 64 << 20
)

// Served compiles catalogs of nodes for an environment of the Puppet Server on this machine, as its user, and stores
// nothing. The facts are those that the Puppet Server has. Served calls the function `found` once for each node, either
// with a catalog or with the reason why the environment did not compile. The key is for the digests of secrets in the
// catalogs. Served returns CodeNotFound if Puppet or the user of a Puppet Server is not there.
func (l Local) Served(ctx context.Context, environment, key string, nodes []tutti.NodeName, found func(n tutti.NodeName, catalog json.RawMessage, failed string) error) error {
	install, err := Find(l.Root)
	if err != nil {
		return err
	}
	account, err := user.Lookup(serverUser)
	if err != nil {
		return tutti.Errorf(tutti.CodeNotFound, "this machine has no Puppet Server: there is no user %s", serverUser)
	}
	as, err := credential(account)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "tutti-served-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	launcher, err := launcherIn(scratch)
	if err == nil {
		err = give(scratch, int(as.Uid), int(as.Gid))
	}
	if err != nil {
		return err
	}
	input, err := json.Marshal(map[string]any{"environment": environment, "nodes": nodes, "key": key})
	if err != nil {
		return err
	}
	return served(ctx, serving{install.Ruby, launcher, scratch, as, input}, nodes, found)
}

// give makes a user and a group the owners of a tree.
func give(dir string, uid, gid int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

func credential(u *user.User) (*syscall.Credential, error) {
	ids := []string{u.Uid, u.Gid}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	var numbers []uint32
	for _, id := range append(ids, groups...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, uint32(n))
	}
	if numbers[0] == 0 {
		return nil, tutti.Errorf(tutti.CodeRefused, "the user %s has all rights: no catalog is compiled", serverUser)
	}
	return &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}, nil
}

// serving is a process that compiles for a Puppet Server.
type serving struct {
	ruby, launcher, dir string
	as                  *syscall.Credential
	input               []byte
}

func served(ctx context.Context, s serving, nodes []tutti.NodeName, found func(tutti.NodeName, json.RawMessage, string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.ruby, s.launcher, "--served")
	cmd.Dir, cmd.WaitDelay, cmd.Env = s.dir, time.Second, append(cleanEnv(), "HOME="+s.dir, "TMPDIR="+s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // also functions that have started something
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(s.input), &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	open := map[tutti.NodeName]bool{}
	for _, n := range nodes {
		open[n] = true
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxServed)
	var bad error
	for bad == nil && lines.Scan() {
		var line struct {
			Node    tutti.NodeName  `json:"node"`
			Catalog json.RawMessage `json:"catalog"`
			Failed  string          `json:"failed"`
		}
		switch err := json.Unmarshal(lines.Bytes(), &line); {
		case err != nil || !open[line.Node] || (line.Catalog == nil) != (line.Failed != ""):
			bad = tutti.Errorf(tutti.CodeInternal, "puppet-tutti --served says %.200q", lines.Text())
		default:
			delete(open, line.Node)
			bad = found(line.Node, line.Catalog, line.Failed)
		}
	}
	if bad = errors.Join(bad, lines.Err()); bad != nil {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case bad != nil:
		return bad
	case ctx.Err() != nil:
		return tutti.Errorf(tutti.CodeDeadline, "the compiles had no end in time: %v", context.Cause(ctx))
	case err != nil:
		return tutti.Errorf(tutti.CodeInvalid, "%s", firstLine(said.String(), err))
	case len(open) > 0:
		return tutti.Errorf(tutti.CodeInternal, "puppet-tutti --served ended without a word about %d nodes", len(open))
	}
	return nil
}
