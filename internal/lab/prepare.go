package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/pidfd"
)

// The method `prepare` builds a base from a host. The host boots in a separate lab, and its own base is
// the parent of the new base. The method runs the script on the host, stops the host and copies its
// files. The lab is removed afterwards, even if this process is killed.
func (m Machine) prepare(ctx context.Context, b building) (err error) {
	spec := b.lab()
	unguard, err := m.guard(b, spec.Name)
	if err != nil {
		return err
	}
	defer unguard()
	// A lab with this name is left only if an earlier builder and its guard were killed.
	if err := m.Down(ctx, spec.Name); err != nil && tutti.CodeOf(err) != tutti.CodeNotFound {
		return err
	}
	running, err := m.Up(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Down(context.WithoutCancel(ctx), spec.Name)) }()
	host := running.Hosts[0]
	script := host.Command(ctx, "sh", "-euc", b.Preparation.Script)
	if err := b.logged(script, (*exec.Cmd).Run); err != nil {
		return tutti.Wrap("", err, "prepare host %q", host.Name)
	}
	if err := host.powerOff(ctx); err != nil {
		return err
	}
	return m.keep(ctx, b, host)
}

// The method `lab` returns the lab in which the host of the base is prepared.
func (b building) lab() Spec {
	parent, _ := b.parent()
	names := b.Preparation.Names
	return Spec{
		Name:       "prepare-" + b.Digest().Hex()[:16],
		Definition: parent,
		Hosts:      []HostSpec{{Name: names[0], Aliases: names[2:]}}, // the second name is the short one
	}
}

//go:embed guard.sh
var guardScript string

// The method `guard` starts a guard process. The guard removes the named lab when this process has ended, or when the
// caller calls the returned function. The returned function waits until the lab is removed. Until then the guard has
// the lock of the base. So the next builder of this base begins when the lab is removed.
func (m Machine) guard(b building, lab string) (end func(), err error) {
	down, err := m.tutti("lab", "down", lab)
	if err != nil {
		return nil, err
	}
	cmd := commands{lock: b.lock}.command(context.Background(), "sh", append([]string{"-c", guardScript, "sh"}, down...)...)
	setSession(cmd)
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = lifeline.Close()
		_ = cmd.Wait() // the guard fails if the lab is already removed, so ignore its error
	}, nil
}

// stopDeadline is how long a host may take to stop. systemd allows each service 90 seconds.
const stopDeadline = 3 * time.Minute

// powerOff makes the host's systemd stop everything, and returns when the host has ended.
func (h *Host) powerOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopDeadline, fmt.Errorf("host %q does not stop within %s", h.Name, stopDeadline))
	defer cancel()
	init := initOf(h.cgroup)
	said, failed := h.Command(ctx, "systemctl", "poweroff", "--no-block").CombinedOutput()
	if err := pidfd.Wait(ctx, init); err != nil {
		if failed != nil {
			err = fmt.Errorf("%w: systemctl poweroff: %w: %s", err, failed, strings.TrimSpace(string(said)))
		}
		return err
	}
	return killGroup(ctx, h.cgroup) // nspawn may still be in the group
}

//go:embed keep.sh
var keepScript string

// The method `keep` copies the files of a stopped host into the base.
func (m Machine) keep(ctx context.Context, b building, h *Host) error {
	own, err := m.hostFiles(ctx, h.state, h.index, b.Release)
	if err != nil {
		return err
	}
	return b.contained(ctx, keepScript, []string{
		"dir=" + h.state.hostDir(h.index),
		"own=" + strings.Join(slices.Sorted(maps.Keys(own)), " "),
	})
}
