package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/pidfd"
)

// Faults of a host. All of them are idempotent: if a host is already in the wanted state, this is not an error. They
// may be called at the same time and from several processes. The machine's lock serialises them with Up and Down.

// Network is how a host is joined to the others.
type Network string

// The states of a host's network.
const (
	NetworkUp      Network = ""
	NetworkCut     Network = "cut"
	NetworkSlow    Network = "slow"
	NetworkSlowCut Network = "slow and cut"
)

// The states of a bridge's port, as the kernel numbers them.
const (
	portBlocked = "0" // it passes nothing in either direction
	portOpen    = "3"
)

// Cut separates the host from all others and from the outer machine. It blocks the host's port of the bridge. The host
// keeps its link, its addresses and its routes. It only notices silence, as with a switch that has failed. (A host sees
// at once when its link is down, and reports it.) The host is joined again when it is restarted, or when it takes its
// own link down and up.
func (h *Host) Cut(ctx context.Context) error {
	return h.plugged(ctx, "cut", func(x commands) error { return h.setPort(ctx, x, h.port(), portBlocked) })
}

// Heal joins the host to the others again, with a link that is not slow.
func (h *Host) Heal(ctx context.Context) error {
	return h.plugged(ctx, "heal", func(x commands) error {
		if err := killGroup(ctx, h.state.relayGroup(h.index)); err != nil {
			return err
		}
		return h.setPort(ctx, x, h.state.veth(h.index), portOpen)
	})
}

// Kill cuts the host's power. Its init and all of its processes are killed at once, and nothing is sent or written any
// more. Its network ends too, so no connection is closed: the peers hear nothing. Its disk stays as it is, and keeps
// also what the kernel had not written yet, because the page cache is the outer machine's.
func (h *Host) Kill(ctx context.Context) error {
	return h.alone(ctx, "kill", func(x commands) error {
		if err := killGroup(ctx, h.state.relayGroup(h.index)); err != nil {
			return err
		}
		if veth := h.state.veth(h.index); portState(veth) != "" { // before dying processes can send anything
			if err := h.setPort(ctx, x, veth, portBlocked); err != nil {
				return err
			}
		}
		init := initOf(h.cgroup)
		if init != 0 {
			// Kill init first and alone: systemd must not see its services end.
			_ = syscall.Kill(init, syscall.SIGKILL)
		}
		if err := killGroup(ctx, h.cgroup); err != nil {
			return err
		}
		// init leaves its group before it has given up all that it holds.
		ending, cancel := context.WithTimeoutCause(ctx, killDeadline, fmt.Errorf("init of host %q does not end", h.Name))
		defer cancel()
		if init != 0 {
			if err := pidfd.Wait(ending, init); err != nil {
				return err
			}
		}
		return h.state.unplug(ctx, x, h.index)
	})
}

// Start boots a host that was killed, with its old disk, name and addresses, and returns when it runs. Its network is
// neither cut nor slow.
func (h *Host) Start(ctx context.Context) error {
	return h.alone(ctx, "start", func(x commands) error {
		if initOf(h.cgroup) == 0 {
			// First remove what a killed Start has left.
			if err := errors.Join(killGroup(ctx, h.cgroup), h.state.unplug(ctx, x, h.index)); err != nil {
				return err
			}
			if err := h.state.plug(ctx, x, h.index, outerMTU()); err != nil {
				return err
			}
			if err := h.state.start(ctx, x, h.index); err != nil {
				return err
			}
		}
		return h.machine.wait(ctx, h.state, h.index)
	})
}

// Slow is what happens to the packets from and to a host.
type Slow struct {
	Delay time.Duration // of each packet, in each direction: a round trip takes twice as long
	Loss  float64       // the fraction of packets that is lost, in each direction; from 0 to less than 1
}

// Validate refuses values that no link has.
func (s Slow) Validate() error {
	if s.Delay < 0 || s.Delay > maxDelay {
		return tutti.Errorf(tutti.CodeInvalid, "delay %s: from 0s to %s", s.Delay, maxDelay)
	}
	if s.Loss < 0 || s.Loss >= 1 {
		return tutti.Errorf(tutti.CodeInvalid, "loss %g%%: from 0%% to less than 100%%", s.Loss*100)
	}
	return nil
}

// maxDelay bounds how many packets a relay keeps.
const maxDelay = 10 * time.Second

// Slow sets how slow the host's link is, in place of the earlier value. A zero Slow makes the link normal. A host that
// is cut stays cut.
func (h *Host) Slow(ctx context.Context, slow Slow) error {
	if err := slow.Validate(); err != nil {
		return err
	}
	return h.plugged(ctx, "slow", func(x commands) error {
		state := portOpen
		if n := h.Network(); n == NetworkCut || n == NetworkSlowCut {
			state = portBlocked
		}
		if err := killGroup(ctx, h.state.relayGroup(h.index)); err != nil {
			return err
		}
		veth := h.state.veth(h.index)
		if slow == (Slow{}) {
			return h.setPort(ctx, x, veth, state)
		}
		relay, err := h.machine.tutti("lab", "relay")
		if err != nil {
			return err
		}
		if err := h.state.relay(ctx, x, h.index, relay, slow); err != nil {
			return err
		}
		// A blocked port gives its packets only to the relay.
		if err := h.setPort(ctx, x, veth, portBlocked); err != nil {
			return err
		}
		tap := h.state.tap(h.index)
		if err := x.run(ctx, fmt.Sprintf("link set %s master %s\nlink set %s up\n", tap, h.state.bridge(), tap), "ip", "-batch", "-"); err != nil {
			return err
		}
		return h.setPort(ctx, x, tap, state)
	})
}

// Network says how a running host is joined to the others now.
func (h *Host) Network() Network {
	port := h.port()
	cut := portState(port) != portOpen
	switch slow := port == h.state.tap(h.index); {
	case slow && cut:
		return NetworkSlowCut
	case slow:
		return NetworkSlow
	case cut:
		return NetworkCut
	}
	return NetworkUp
}

// port is the host's port of the bridge: the outer end of its pair, or the interface that stands in for it while the
// link is slow.
func (h *Host) port() string {
	tap := h.state.tap(h.index)
	if _, err := net.InterfaceByName(tap); err == nil {
		return tap
	}
	return h.state.veth(h.index)
}

// setPort opens or blocks a port and drops the addresses that the bridge has learned on it. The next packet teaches
// them again. They are dropped first, because each change of a link by `ip` opens its port.
func (h *Host) setPort(ctx context.Context, x commands, port, state string) error {
	if portState(port) == state {
		return nil
	}
	if err := x.run(ctx, "", "ip", "link", "set", port, "type", "bridge_slave", "fdb_flush"); err != nil {
		return err
	}
	return x.run(ctx, "", "bridge", "link", "set", "dev", port, "state", state)
}

func portState(port string) string {
	text, err := os.ReadFile(filepath.Join("/sys/class/net", port, "brport", "state"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// plugged runs do like alone if the host runs: a host without power has no network.
func (h *Host) plugged(ctx context.Context, what string, do func(commands) error) error {
	return h.alone(ctx, what, func(x commands) error {
		if portState(h.state.veth(h.index)) == "" {
			return h.down()
		}
		return do(x)
	})
}

// alone runs do under the machine's lock, if the lab is still there.
func (h *Host) alone(ctx context.Context, what string, do func(commands) error) error {
	if err := Check(); err != nil {
		return err
	}
	lock, err := h.machine.lock(ctx, lockFile)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := h.machine.load(h.state.Name); err != nil {
		return err
	}
	return tutti.Wrap("", do(commands{lock: lock}), "%s host %q", what, h.Name)
}
