package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/wire"
)

// agentState lists everything that `tutti join` and the agent create in the state
// directory. `tutti leave` removes only what is listed here, so list new files here.
var agentState = []string{"runs", "known", "code", "environments", "module", "foreign", "lock", CompileFile, agent.LeaseFile, agent.BegunFile, agent.SignedFile, agent.ActionsFile, agent.TicketFile, agent.AloneFile, agent.ClockFile, agent.OwedFile, agent.LocalSocketFile, ".new-*", leftFile, "identity"}

// If leftFile exists, the server has removed the node. Leave then only has to clean up this machine.
const leftFile = "left"

// LeaveOptions say how a machine leaves its fleet.
type LeaveOptions struct {
	Dir     string
	Offline bool // leave without the server
}

// Left describes what Leave has done.
type Left struct {
	Node    tutti.NodeName
	Told    bool     // the server has removed the node
	Remains []string // files of others in the state directory
	Owed    []string // resources whose refresh was missed by a run
}

// Leave undoes Join. The server removes the node, the agent stops, and Leave removes the agent's unit and state. If
// Leave fails before the server has removed the node, nothing has changed. If Leave fails after that, call Leave
// again to continue. Leave returns CodeConflict if a run is going on or if the server lacks a result.
func Leave(ctx context.Context, o LeaveOptions) (Left, error) {
	var out Left
	member, err := LoadMembership(IdentityDir(o.Dir))
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return out, tutti.Errorf(tutti.CodeNotFound, "this machine is not a node: %s has no membership", o.Dir)
	}
	if err != nil {
		return out, err
	}
	out.Node = member.Node
	unit, err := unitOf(o.Dir)
	if err != nil {
		return out, err
	}
	if err := settled(o); err != nil {
		return out, err
	}
	if err := unit.stop(ctx); err != nil {
		return out, err
	}
	lock, err := durable.Lock(o.Dir)
	if err == nil {
		defer lock.Close()
		err = settled(o) // no run can begin any more
	} else {
		err = tutti.Wrap("", err, "stop the agent first")
	}
	if err == nil && !o.Offline && !durable.Exists(filepath.Join(o.Dir, leftFile)) {
		err = tellLeave(ctx, o.Dir, member)
	}
	if err != nil {
		return out, errors.Join(err, unit.startAgain(context.WithoutCancel(ctx)))
	}
	out.Told = durable.Exists(filepath.Join(o.Dir, leftFile))
	owed, err := agent.Owed(o.Dir)
	if err != nil {
		out.Owed = []string{"unknown, because " + err.Error()}
	}
	for _, r := range owed {
		out.Owed = append(out.Owed, r.Resource)
	}
	if err := unit.remove(ctx); err != nil {
		return out, err
	}
	out.Remains, err = removeState(o.Dir)
	return out, err
}

// The function `settled` returns an error if the node cannot leave now without losing data.
func settled(o LeaveOptions) error {
	if durable.Exists(filepath.Join(o.Dir, agent.LeaseFile)) {
		return tutti.Errorf(tutti.CodeConflict, "an exclusive job has disabled Puppet here; the agent enables Puppet when the job or its lease ends: wait, and keep the agent running")
	}
	dirs, err := filepath.Glob(filepath.Join(o.Dir, "runs", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		run := filepath.Base(dir)
		switch {
		case !durable.Exists(filepath.Join(dir, "run.json")) || durable.Exists(filepath.Join(dir, "sent")):
		case durable.Exists(filepath.Join(dir, "result.json")):
			if !o.Offline {
				return tutti.Errorf(tutti.CodeConflict, "the server does not have the result of run %s yet; wait until the agent has sent it, or give the result up with --offline", run)
			}
		default:
			if p, err := puppet.Adopt(dir); err != nil || p != nil {
				return tutti.Errorf(tutti.CodeConflict, "run %s goes on here; wait for its end, or cancel its job", run)
			}
			if !o.Offline {
				return tutti.Errorf(tutti.CodeConflict, "run %s has ended, but the agent has not stored its result; start the agent, or give the run up with --offline", run)
			}
		}
	}
	return nil
}

const leaveDeadline = 20 * time.Second

// tellLeave asks the server to remove the node, and notes the removal in leftFile.
func tellLeave(ctx context.Context, dir string, member identity.EnrolResponse) error {
	node, err := LoadKeys(IdentityDir(dir))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveDeadline)
	defer cancel()
	conn, err := natsbus.Dial(ctx, natsbus.DialOptions{
		URLs: []string{"nats://" + member.Bus}, JWT: member.JWT, Seed: node.Seed, CA: []byte(member.CA),
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = agent.Greet(ctx, conn, dir); err == nil {
		_, err = conn.Call(ctx, wire.OpLeave, []byte("{}"))
	}
	switch tutti.CodeOf(err) {
	case "", tutti.CodeUnauthenticated: // the server does not know the node, or no longer knows it
	case tutti.CodeUnavailable, tutti.CodeDeadline:
		return tutti.Wrap("", err, "the server at %s does not answer; if it never will: tutti leave --offline", member.Bus)
	default:
		return err
	}
	return durable.WriteFile(filepath.Join(dir, leftFile), nil, 0o600)
}

// removeState removes our files and the directories that are empty after that. The
// function removes the identity last, because Leave needs the identity to continue after
// a failure.
func removeState(dir string) (remains []string, err error) {
	for _, name := range agentState {
		found, err := filepath.Glob(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		remains = append(remains, filepath.Join(dir, e.Name()))
	}
	if len(remains) > 0 {
		return remains, nil
	}
	if err := os.Remove(dir); err != nil {
		return nil, err
	}
	if parent := filepath.Dir(dir); filepath.Base(parent) == "tutti" {
		_ = os.Remove(parent) // fails if the parent also has the directory of a server
	}
	return nil, nil
}

// unit is the systemd unit of an agent. The zero value means that there is no unit.
type unit struct {
	name string
	file string // the unit file that join wrote; empty: the unit is from a package
	ran  bool   // the unit was running when it was stopped
}

// unitOf finds the unit that runs the agent of a state directory.
func unitOf(dir string) (unit, error) {
	if !durable.Exists("/run/systemd/system") {
		return unit{}, nil
	}
	for _, at := range []string{unitDir, packagedUnit} {
		path := filepath.Join(at, AgentUnit)
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return unit{}, err
		}
		runs := cli.DefaultAgentDir
		if _, rest, named := strings.Cut(string(raw), "tutti agent --dir "); named {
			runs, _, _ = strings.Cut(rest, "\n")
		}
		if runs != dir {
			return unit{}, nil // this unit runs another agent
		}
		if at == unitDir {
			return unit{name: AgentUnit, file: path}, nil
		}
		return unit{name: AgentUnit}, nil
	}
	return unit{}, nil
}

func (u *unit) stop(ctx context.Context) error {
	u.ran = u.systemctl(ctx, "is-active", u.name) == nil
	return u.systemctl(ctx, "stop", u.name)
}

// startAgain starts the unit if the method `stop` has stopped it.
func (u unit) startAgain(ctx context.Context) error {
	if !u.ran {
		return nil
	}
	return u.systemctl(ctx, "start", u.name)
}

// The method `remove` disables the unit, and removes a unit file that join wrote.
func (u unit) remove(ctx context.Context) error {
	if err := u.systemctl(ctx, "disable", "--quiet", u.name); err != nil || u.file == "" {
		return err
	}
	if err := os.Remove(u.file); err != nil {
		return err
	}
	return u.systemctl(ctx, "daemon-reload")
}

func (u unit) systemctl(ctx context.Context, args ...string) error {
	if u.name == "" {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
