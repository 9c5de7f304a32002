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

// Faults of a host. These methods are idempotent. If a host is already in the wanted state, the methods return no
// error. Several goroutines and several processes may call the methods at the same time. The machine's lock makes
// these methods run one after the other, also with Up and Down.

// Network is the state of a host's connection to the other hosts.
type Network string

// These are the states of a host's network.
const (
	NetworkUp      Network = ""
	NetworkCut     Network = "cut"
	NetworkSlow    Network = "slow"
	NetworkSlowCut Network = "slow and cut"
)

// These are the states of a bridge's port, with the kernel's numbers.
const (
	portBlocked = "0" // the port passes no packets in either direction
	portOpen    = "3"
)

// Cut separates the host from all other hosts and from the outer machine. Cut blocks the host's port on the bridge.
// The host keeps its link, its addresses and its routes. The only effect is that the host gets no packets any more,
// as with a switch that has failed. (Cut does not take the link down, because the host would notice this at once.)
// The connection comes back when the host restarts, or when the host takes its own link down and up.
func (h *Host) Cut(ctx context.Context) error {
	return h.plugged(ctx, "cut", func(x commands) error { return h.setPort(ctx, x, h.port(), portBlocked) })
}

// Heal undoes Cut and Slow. The host is connected again, at normal speed.
func (h *Host) Heal(ctx context.Context) error {
	return h.plugged(ctx, "heal", func(x commands) error {
		if err := killGroup(ctx, h.state.relayGroup(h.index)); err != nil {
			return err
		}
		return h.setPort(ctx, x, h.state.veth(h.index), portOpen)
	})
}

// Kill simulates a loss of the host's power. Kill kills init and all other processes of the host at once, so the
// host sends and writes nothing more. The host's network ends too. Nothing closes its connections, so its peers get
// no message. The host's disk stays as it is. The disk also keeps data that the host's kernel has not yet written,
// because the page cache belongs to the outer machine.
func (h *Host) Kill(ctx context.Context) error {
	return h.alone(ctx, "kill", func(x commands) error {
		if err := killGroup(ctx, h.state.relayGroup(h.index)); err != nil {
			return err
		}
		// block the port first, so that ending processes cannot send anything
		if veth := h.state.veth(h.index); portState(veth) != "" {
			if err := h.setPort(ctx, x, veth, portBlocked); err != nil {
				return err
			}
		}
		init := initOf(h.cgroup)
		if init != 0 {
			// Kill init first and alone, so that systemd does not see how its services end.
			_ = syscall.Kill(init, syscall.SIGKILL)
		}
		if err := killGroup(ctx, h.cgroup); err != nil {
			return err
		}
		// init leaves its group before it has released all of its resources.
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

// Start boots a host that was killed. The host keeps its disk, name and addresses. Start returns when the host runs.
// The host's network is neither cut nor slow.
func (h *Host) Start(ctx context.Context) error {
	return h.alone(ctx, "start", func(x commands) error {
		if initOf(h.cgroup) == 0 {
			// Remove the rest of a Start that was killed.
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

// Slow describes how slow and lossy a host's link is.
type Slow struct {
	Delay time.Duration // delay of each packet in each direction, so a round trip takes twice as long
	Loss  float64       // fraction of packets that get lost in each direction, from 0 to less than 1
}

// Validate returns an error for values outside the possible range.
func (s Slow) Validate() error {
	if s.Delay < 0 || s.Delay > maxDelay {
		return tutti.Errorf(tutti.CodeInvalid, "delay %s: from 0s to %s", s.Delay, maxDelay)
	}
	if s.Loss < 0 || s.Loss >= 1 {
		return tutti.Errorf(tutti.CodeInvalid, "loss %g%%: from 0%% to less than 100%%", s.Loss*100)
	}
	return nil
}

// maxDelay limits how many packets a relay must store.
const maxDelay = 10 * time.Second

// Slow sets the delay and the loss of the host's link. Slow replaces the earlier values. If both values
// are zero, the link becomes normal. A host that is cut stays cut.
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
		// The relay must be the only one that gets the packets of the host's port. So the bridge
		// does not forward the packets of this port.
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

// Network returns the present state of a running host's connection to the others.
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

// The method `port` returns the host's port on the bridge. While the link is slow, the port is the
// relay's interface. At all other times, it is the outer end of the host's veth pair.
func (h *Host) port() string {
	tap := h.state.tap(h.index)
	if _, err := net.InterfaceByName(tap); err == nil {
		return tap
	}
	return h.state.veth(h.index)
}

// setPort opens or blocks a port. setPort also drops the addresses that the bridge has learned on the
// port. The bridge learns the addresses again with the next packet. setPort drops the addresses before
// it sets the state, because every change of a link by `ip` opens the link's port.
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

// The method `plugged` is like the method `alone`, but calls the function `do` only if the host runs. A
// host without power has no network.
func (h *Host) plugged(ctx context.Context, what string, do func(commands) error) error {
	return h.alone(ctx, what, func(x commands) error {
		if portState(h.state.veth(h.index)) == "" {
			return h.down()
		}
		return do(x)
	})
}

// The method `alone` takes the machine's lock and calls the function `do`. If the lab no longer exists, the method
// does not call `do`.
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
