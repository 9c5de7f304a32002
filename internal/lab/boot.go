package lab

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

//go:embed join.sh
var joinScript string

//go:embed host.sh
var hostScript string

// journald is a journald configuration for hosts. The journal stays in memory, so it does not wait for
// the disk and does not fill the disk.
const journald = "[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\n"

// hostFiles returns the files that turn a base into this host, by their path on the host. These files are different
// for each host.
func (m Machine) hostFiles(ctx context.Context, s state, host int, release string) (map[string]string, error) {
	sources, settings, err := m.apt(ctx, release)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return map[string]string{
		"etc/hostname":                         shortName(s.Hosts[host].Name) + "\n",
		"etc/hosts":                            s.hostsFile(),
		"etc/machine-id":                       hex.EncodeToString(id) + "\n",
		"etc/apt/sources.list":                 sources.text,
		"etc/apt/apt.conf.d/90lab":             settings,
		"etc/resolv.conf":                      resolvConf(),
		"etc/systemd/journald.conf.d/lab.conf": journald,
	}, nil
}

// The method `furnish` creates the directories of a host. It writes files into the host's upper layer.
// It does not write a file that is equal to the base's file, because a rewritten file looks newer. For
// example, apt would drop its caches because of a newer sources.list.
func (s state) furnish(host int, files map[string]string) error {
	dir := s.hostDir(host)
	for _, sub := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if same, err := os.ReadFile(filepath.Join(s.Hosts[host].Base, name)); err == nil && string(same) == text {
			continue
		}
		path := filepath.Join(dir, "upper", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func shortName(name string) string {
	short, _, _ := strings.Cut(name, ".")
	return short
}

// hostsFile returns /etc/hosts, which is the same on every host. The file has all hosts and the outer machine.
func (s state) hostsFile() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	fmt.Fprintf(&b, "%s %s.%s %s %s\n", s.outer(), outerName, s.Domain, outerName, serverName)
	for _, h := range s.Hosts {
		fmt.Fprintf(&b, "%s %s\n", h.Address, strings.Join(h.Names, " "))
	}
	return b.String()
}

// The method `start` starts a host whose files and network are ready.
func (s state) start(ctx context.Context, x commands, host int) error {
	groups := cgroupDirs(s.cgroup(host))
	if len(groups) == 0 {
		return tutti.Errorf(tutti.CodeInvalid, "no control groups for systemd: none of these is a mounted hierarchy: %s", strings.Join(hierarchies, ", "))
	}
	args := append([]string{
		"--mount", "--propagation", "slave", "--",
		"sh", "-c", joinScript + hostScript, "sh", strconv.Itoa(len(groups)),
	}, groups...)
	args = append(args,
		"--machine="+s.veth(host), "--hostname="+shortName(s.Hosts[host].Name),
		"--network-namespace-path="+s.netns(host), "--capability=CAP_NET_ADMIN")
	for _, b := range s.Hosts[host].Binds {
		option := "--bind="
		if b.ReadOnly {
			option = "--bind-ro="
		}
		args = append(args, option+escapeColons(b.Source)+":"+escapeColons(b.Destination))
	}
	cmd := x.command(ctx, "unshare", args...)
	cmd.Env = append(cmd.Env, "base="+s.Hosts[host].Base, "dir="+s.hostDir(host))
	setSession(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return tutti.Wrap("", err, "start host %q: %s", s.Hosts[host].Name, strings.TrimSpace(string(out)))
	}
	return nil
}

func escapeColons(path string) string { return strings.ReplaceAll(path, ":", `\:`) }

// These constants are how long a host may take to boot, and how often its state is checked. Booting a host takes
// about a second. A busy machine with many hosts may need much longer.
const (
	bootDeadline = 2 * time.Minute
	bootEvery    = 25 * time.Millisecond
)

// The method `wait` waits until the host's systemd reports that it is running. If a unit of the host failed, the host
// still counts as running, and the method logs the failure.
func (m Machine) wait(ctx context.Context, s state, host int) error {
	name := s.Hosts[host].Name
	ctx, cancel := context.WithTimeoutCause(ctx, bootDeadline, fmt.Errorf("host %q does not boot within %s", name, bootDeadline))
	defer cancel()
	h := m.host(s, host)
	for {
		// the output has more information than the exit code
		out, _ := h.Command(ctx, "systemctl", "is-system-running", "--wait").Output()
		switch word := strings.TrimSpace(string(out)); word {
		case "running":
			return nil
		case "degraded":
			failed, _ := h.Command(ctx, "systemctl", "--failed", "--plain", "--no-legend").Output()
			m.logf("host %s: units failed at boot: %s", name, strings.TrimSpace(string(failed)))
			return nil
		}
		if pids, err := members(s.cgroup(host)); err == nil && len(pids) == 0 {
			return fmt.Errorf("host %q ended while it booted:\n%s", name, tail(s.consoleLog(host), 8))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("boot: %w; its console:\n%s", context.Cause(ctx), tail(s.consoleLog(host), 8))
		case <-time.After(bootEvery):
		}
	}
}
