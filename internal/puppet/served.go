package puppet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
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

// servedFor is how long a process that compiles for a Puppet Server may take, even if the agent has ended.
const servedFor = tutti.MaxRemoteWait + time.Minute

// Served compiles catalogs of nodes for an environment of the Puppet Server on this machine, as its user, and stores
// nothing. The facts are those that the Puppet Server has. Served calls the function `found` once for each node, either
// with a catalog or with the reason why the environment did not compile. If the compile for a node ends the process, this
// is the reason, and another process goes on with the other nodes. The key is for the digests of secrets in the catalogs.
// Served returns CodeNotFound if Puppet or the user of a Puppet Server is not there. When it returns, everything that the
// compiles have started has ended.
func (l Local) Served(ctx context.Context, environment, key string, nodes []tutti.NodeName, found func(n tutti.NodeName, catalog json.RawMessage, failed string) error) error {
	install, err := Find(l.Root)
	if err != nil {
		return err
	}
	account, err := user.Lookup(serverUser)
	if err != nil {
		return tutti.Errorf(tutti.CodeNotFound, "this machine has no Puppet Server: there is no user %s", serverUser)
	}
	if account.Uid == "0" {
		return tutti.Errorf(tutti.CodeRefused, "the user %s has all rights: no catalog is compiled", serverUser)
	}
	removeOld(os.TempDir(), servedFor)
	scratch, err := os.MkdirTemp("", servedDir)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	launcher, err := launcherIn(scratch)
	if err == nil {
		err = give(scratch, account)
	}
	if err != nil {
		return err
	}
	s := serving{ruby: install.Ruby, launcher: launcher, dir: scratch, account: account, environment: environment, key: key}
	return s.all(ctx, nodes, found)
}

// servedDir begins the names of temporary directories.
const servedDir = "tutti-served-"

// removeOld removes the directories of processes whose agent was killed.
func removeOld(dir string, age time.Duration) {
	all, _ := filepath.Glob(filepath.Join(dir, servedDir+"*"))
	for _, old := range all {
		if info, err := os.Lstat(old); err == nil && time.Since(info.ModTime()) > age {
			_ = os.RemoveAll(old)
		}
	}
}

// give makes a user the owner of a tree.
func give(dir string, u *user.User) error {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

// serving starts processes that compile for a Puppet Server. Without an account the processes are of the agent's user.
type serving struct {
	ruby, launcher, dir string
	account             *user.User
	environment, key    string
}

// The method `all` compiles for all nodes.
func (s serving) all(ctx context.Context, nodes []tutti.NodeName, found func(tutti.NodeName, json.RawMessage, string) error) error {
	for len(nodes) > 0 {
		left, why, err := s.some(ctx, nodes, found)
		if err != nil {
			return err
		}
		if len(left) > 0 { // the nodes are compiled in their order
			if err := found(left[0], nil, why); err != nil {
				return err
			}
			left = left[1:]
		}
		nodes = left
	}
	return nil
}

// The method `some` compiles for nodes until the process ends. It returns the nodes that have no result then, and why the
// process ended.
func (s serving) some(ctx context.Context, nodes []tutti.NodeName, found func(tutti.NodeName, json.RawMessage, string) error) (left []tutti.NodeName, why string, err error) {
	input, err := json.Marshal(map[string]any{"environment": s.environment, "nodes": nodes, "key": s.key})
	if err != nil {
		return nil, "", err
	}
	unit := "tutti-served-" + strconv.FormatInt(time.Now().UnixNano(), 36) + ".scope"
	argv := []string{"/usr/bin/env", "HOME=" + s.dir, "TMPDIR=" + s.dir, s.ruby, s.launcher, "--served"}
	if s.account != nil && !systemd() {
		argv = append([]string{"/usr/bin/setpriv", "--reuid=" + s.account.Uid, "--regid=" + s.account.Gid, "--init-groups", "--"}, argv...)
	}
	options := []string{"--property=RuntimeMaxSec=" + strconv.Itoa(int(servedFor.Seconds()))} // also if the agent is killed
	if s.account != nil {
		options = append(options, "--uid="+s.account.Uid, "--gid="+s.account.Gid)
	}
	cmd := inScope(unit, "Catalogs for a comparison", argv, options...)
	cmd.Dir, cmd.WaitDelay = s.dir, time.Second
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, "", err
	}
	end := func() { endServed(unit, cmd.Process.Pid) }
	stop := context.AfterFunc(ctx, end)
	left, bad := s.read(out, nodes, found)
	if bad != nil {
		end()
	}
	err = cmd.Wait()
	stop()
	end() // what the process has started, too
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // something that the compile has started was still there
	}
	switch {
	case bad != nil:
		return nil, "", bad
	case ctx.Err() != nil:
		return nil, "", tutti.Errorf(tutti.CodeDeadline, "the compiles had no end in time: %v", context.Cause(ctx))
	case cmd.ProcessState.ExitCode() == servedRefuses:
		return nil, "", tutti.Errorf(tutti.CodeInvalid, "%s", firstLine(said.String(), err))
	}
	why = "the compile ended the whole process"
	if said.Len() > 0 || err != nil {
		why += ": " + firstLine(said.String(), cmp.Or(err, errors.New("without a word")))
	}
	return left, why, nil
}

// servedRefuses is the exit code of puppet-tutti --served if it cannot compile for any node.
const servedRefuses = 86

// endServed kills all processes of a scope, or of a session where no systemd is.
func endServed(unit string, pid int) {
	if !systemd() {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = exec.CommandContext(ctx, "/usr/bin/systemctl", "kill", "--signal=KILL", unit).Run() // the scope may be gone
}

// The method `read` reads the results of a process. It returns the nodes without a result.
func (s serving) read(out io.Reader, nodes []tutti.NodeName, found func(tutti.NodeName, json.RawMessage, string) error) ([]tutti.NodeName, error) {
	left := slices.Clone(nodes)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxServed)
	for lines.Scan() {
		var line struct {
			Node    tutti.NodeName  `json:"node"`
			Catalog json.RawMessage `json:"catalog"`
			Failed  string          `json:"failed"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || len(left) == 0 || line.Node != left[0] || (line.Catalog == nil) != (line.Failed != "") {
			return left, tutti.Errorf(tutti.CodeInternal, "puppet-tutti --served says %.200q", lines.Text())
		}
		left = left[1:]
		if err := found(line.Node, line.Catalog, line.Failed); err != nil {
			return left, err
		}
	}
	return left, lines.Err()
}
