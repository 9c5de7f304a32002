package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/internal/space"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

// agentReserve is how much disk space must be free before a run begins. A run needs the space for its report, its
// log, and the values that it publishes while the server is away.
const agentReserve = 32 << 20

// AgentOptions are the settings of an agent.
type AgentOptions struct {
	Dir    string
	Root   string // directory under which the agent looks for Puppet, normally "/"
	Beat   time.Duration
	Policy string        // file of the node's policy. If Policy is empty, there is no policy file
	Warm   time.Duration // how long Puppet stays loaded for the next run. 0 means that it does not stay loaded
	// FactsEvery is the interval at which the agent collects facts. The agent also collects facts after each run. 0
	// means only after runs.
	FactsEvery time.Duration
	Logger     *slog.Logger
}

// Agent is the whole agent process.
type Agent struct {
	opts       AgentOptions
	lock       *os.File
	node       identity.NodeIdentity
	boxes      *identity.Boxes
	membership identity.EnrolResponse
	signers    *machine.Signers
	launcher   string
	modules    string
	compile    *agent.CompileSocket
	core       atomic.Pointer[agent.Agent]
}

// NewAgent takes the lock of the state directory and reads the identity.
func NewAgent(opts AgentOptions) (*Agent, error) {
	var err error
	// Puppet has another working directory, so make these paths absolute
	for _, dir := range []*string{&opts.Dir, &opts.Root} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, err
		}
	}
	a := &Agent{opts: opts}
	if a.node, err = machine.LoadKeys(machine.IdentityDir(opts.Dir)); err != nil {
		return nil, err
	}
	if a.boxes, err = machine.LoadBoxes(machine.IdentityDir(opts.Dir)); err != nil {
		return nil, err
	}
	if a.membership, err = machine.LoadMembership(machine.IdentityDir(opts.Dir)); err != nil {
		return nil, err
	}
	if a.launcher, a.modules, err = shipModule(opts.Dir); err != nil {
		return nil, err
	}
	// if this fails, the agent still runs Puppet on its own node
	if a.compile, err = compileSocket(opts.Dir); err != nil {
		opts.Logger.Error("the module on a Puppet Server cannot use this agent for compiles", "error", err)
	}
	if a.lock, err = durable.Lock(opts.Dir); err != nil {
		return nil, err
	}
	if err := machine.KeepFleet(machine.IdentityDir(opts.Dir), &a.membership); err != nil {
		return nil, err
	}
	a.signers, err = machine.NewSigners(machine.IdentityDir(opts.Dir), a.membership)
	return a, err
}

// Run runs the agent until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	defer a.lock.Close()
	conn, err := natsbus.Dial(ctx, natsbus.DialOptions{
		URLs: []string{"nats://" + a.membership.Bus}, JWT: a.membership.JWT, Seed: a.node.Seed,
		CA: []byte(a.membership.CA), Logger: a.opts.Logger, NotAdmitted: a.notAdmitted,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetTicket(agent.Ticket(a.opts.Dir))
	local := puppet.Local{Root: a.opts.Root}
	follow := make(chan struct{}, 1)
	warm := puppet.NewWarm(a.opts.Root, a.launcher, a.opts.Warm)
	runs := &runner{root: a.opts.Root, launcher: a.launcher, modules: a.modules, digestKey: digestKey(a.node.Seed), warm: warm}
	core := agent.New(agent.Options{
		Dir: a.opts.Dir, Node: a.membership.Node, Bus: conn, Machine: machineOf(a.opts.Root),
		Runner: runs, Facts: runs, FactsEvery: a.opts.FactsEvery,
		Signers: a.signers,
		Acting:  a.signers,
		Boxes:   a.boxes,
		Space:   room(a.opts.Dir),
		Local:   local, Allow: allow(a.opts.Policy, local), Witness: local, Files: local.Files, Switch: local, Warm: warm,
		Compile: a.compile, Idle: giveBack,
		Follow: func() {
			select {
			case follow <- struct{}{}:
			default: // the channel already contains a signal
			}
		},
		Logger: a.opts.Logger, Version: Version, Beat: a.opts.Beat, ServeLocal: true,
	})
	a.core.Store(core)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return core.Run(ctx) })
	group.Go(func() error { return warm.Run(ctx) })
	group.Go(func() error {
		return machine.Keeper{EnrolResponse: a.membership, Dir: machine.IdentityDir(a.opts.Dir), Conn: conn, Log: a.opts.Logger, Rung: follow}.Keep(ctx)
	})
	conn.OnConnect(func() { notify("STATUS=Connected to the server as node " + string(a.membership.Node)) })
	notify("READY=1")
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// machineOf returns a digest that identifies the installation of this machine without revealing the machine's ids.
// The digest is made from systemd's id, which is new after each installation, and from the id of the hardware or the
// hypervisor. machineOf returns an empty digest if the machine has no such id.
func machineOf(root string) tutti.Digest {
	var ids []byte
	for _, name := range []string{"etc/machine-id", "sys/class/dmi/id/product_uuid"} {
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			raw = nil
		}
		ids = append(append(ids, raw...), 0)
	}
	if len(ids) == 2 {
		return ""
	}
	return tutti.DigestOf(append([]byte("tutti machine "), ids...))
}

// notAdmitted reports in the log and in systemd's status that the server does not admit the node. Waiting would not
// help.
func (a *Agent) notAdmitted(err error) {
	node := a.membership.Node
	why := "it was removed from the fleet, another machine took its place, or the keys that let it in were rotated while it was away"
	if tutti.CodeOf(err) == tutti.CodeRefused {
		why = "the server shows a certificate of a CA that this node does not know: the fleet's CA was rotated while the node was away, or the server belongs to another fleet"
	}
	if _, until, bad := identity.JWTLife(a.membershipNow().JWT); bad == nil && !time.Now().Before(until) {
		why = "its membership ended at " + until.UTC().Format(time.RFC3339)
	}
	a.opts.Logger.Error("the server does not let this node in: join again", "node", node, "why", why,
		"hint", fmt.Sprintf("tutti token create --name %s | ssh %s tutti join --again", node, node), "error", err)
	notify(fmt.Sprintf("STATUS=Not admitted, join again: %s", why))
	if core := a.core.Load(); core != nil { // the agent must no longer rely on what the server told it earlier
		core.Denied(errors.New(why))
	}
}

// membershipNow reads the membership from the disk. The membership on the disk may be newer than the one in memory.
func (a *Agent) membershipNow() identity.EnrolResponse {
	if m, err := identity.LoadMembership(machine.IdentityDir(a.opts.Dir)); err == nil {
		return m
	}
	return a.membership
}

// The function `room` returns a function that returns an error if there is not enough disk space to begin a run. The
// function checks the disk at each call, because the previous run may have filled it.
func room(dir string) func() error {
	reserve := space.NewReserve("this node's", dir, agentReserve)
	return func() error {
		reserve.Stale()
		return reserve.Check()
	}
}

// digestKey derives a secret from the node's key. The secret is used for the digests of Sensitive parameters. Without
// the secret, an attacker could guess passwords from their digests.
func digestKey(seed []byte) string {
	mac := hmac.New(sha256.New, seed)
	mac.Write([]byte("tutti digest key"))
	return hex.EncodeToString(mac.Sum(nil))
}

// shipModule writes the module tutti of this release into the agent's state directory, if it is not there yet.
// shipModule returns the launcher's path and the directory for Puppet's modulepath.
func shipModule(dir string) (launcher, modules string, err error) {
	digest, err := puppetmodule.Digest()
	if err != nil {
		return "", "", err
	}
	modules = filepath.Join(dir, "module", digest[:16])
	launcher = filepath.Join(modules, "tutti", "bin", "puppet-tutti")
	if _, err := os.Stat(modules); err == nil {
		return launcher, modules, nil
	}
	tmp := modules + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", "", err
	}
	if err := os.CopyFS(filepath.Join(tmp, "tutti"), puppetmodule.FS()); err != nil {
		return "", "", err
	}
	err = filepath.WalkDir(filepath.Join(tmp, "tutti", "bin"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o755)
	})
	if err != nil {
		return "", "", err
	}
	// shipModule never overwrites an existing module. So all files must be on disk before the module gets its final
	// name.
	if err := durable.SyncAll(tmp); err != nil {
		return "", "", err
	}
	if err := os.Rename(tmp, modules); err != nil {
		return "", "", err
	}
	return launcher, modules, durable.SyncDir(filepath.Dir(modules))
}
