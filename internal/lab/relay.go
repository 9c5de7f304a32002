package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// A slow link is a process that delays or drops packets. The netem of tc does the same in the kernel,
// but some kernels do not have netem. So the lab never uses netem. A second way for some machines would
// be tested only on these machines.

//go:embed relay.sh
var relayScript string

// These constants are how long a relay may take to begin, and how often the function `relay` checks whether the
// process has begun.
const (
	relayDeadline = 20 * time.Second
	relayEvery    = 10 * time.Millisecond
)

// The method `relay` starts the host's relay in a separate control group. The relay is the program with additional
// arguments. The relay makes an interface that replaces the host's port. The method returns when this interface
// exists.
func (s state) relay(ctx context.Context, x commands, host int, program []string, slow Slow) error {
	groups := cgroupDirs(s.relayGroup(host))
	args := append([]string{"-c", joinScript + relayScript, "sh", strconv.Itoa(len(groups))}, groups...)
	args = append(args, program...)
	args = append(args, s.veth(host), s.tap(host), slow.Delay.String(), strconv.FormatFloat(slow.Loss, 'g', -1, 64))
	cmd := x.command(ctx, "sh", args...)
	log := filepath.Join(s.hostDir(host), "relay.log")
	cmd.Env = append(cmd.Env, "log="+log)
	setSession(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return commandError(cmd, err, out)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, relayDeadline, fmt.Errorf("the relay does not begin within %s", relayDeadline))
	defer cancel()
	for {
		if _, err := net.InterfaceByName(s.tap(host)); err == nil {
			return nil
		}
		if pids, err := members(s.relayGroup(host)); err == nil && len(pids) == 0 {
			return fmt.Errorf("the relay ended at once: %s", tail(log, 4))
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), killGroup(context.WithoutCancel(ctx), s.relayGroup(host)))
		case <-time.After(relayEvery):
		}
	}
}

// ParseRelay parses the arguments of a relay process.
func ParseRelay(args []string) (port, tap string, slow Slow, err error) {
	if len(args) != 4 || !strings.HasPrefix(args[0], "tl") || !strings.HasPrefix(args[1], "tl") {
		return "", "", Slow{}, tutti.Errorf(tutti.CodeInvalid, "a relay is started by `tutti lab slow` alone")
	}
	if slow.Delay, err = time.ParseDuration(args[2]); err != nil {
		return "", "", Slow{}, err
	}
	if slow.Loss, err = strconv.ParseFloat(args[3], 64); err != nil {
		return "", "", Slow{}, err
	}
	return args[0], args[1], slow, slow.Validate()
}
