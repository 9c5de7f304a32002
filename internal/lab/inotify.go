package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The type `limit` is a limit of the kernel that all hosts of all labs share. Hosts have no user namespaces, so they
// all count as the same root user. If the limit is too low, systemd, udev and agents fail while a host boots. Their
// errors do not name the limit. So labs raise the limit. The old value is stored outside of the labs' directories
// until the last lab is removed. All callers of the methods `raise` and `restore` have the machine's lock.
type limit struct {
	setting string // its file in /proc/sys
	before  string // file with the limit's old value and the raised value
	machine int    // how much the machine itself needs
	host    int    // how much each host needs
}

// The kernel's default limit for instances is 128. A host without services uses six instances with 23 watches, and
// five of the six belong to systemd (find /proc/[0-9]*/fd -lname '*inotify*', trixie). Agents, Puppet and services
// use more. The numbers below leave room for these programs.
var limits = []limit{
	{setting: "/proc/sys/fs/inotify/max_user_instances", before: runDir + "/inotify_instances", machine: 32, host: 16},
	{setting: "/proc/sys/fs/inotify/max_user_watches", before: runDir + "/inotify_watches", machine: 8192, host: 1024},
}

// raiseLimits makes the limits large enough for this number of hosts. If raiseLimits cannot raise a limit, it only
// logs the failure, because the hosts may still work.
func (m Machine) raiseLimits(all []limit, hosts int) {
	for _, l := range all {
		switch from, to, err := l.raise(hosts); {
		case err != nil:
			m.logf("%d hosts may need more than the kernel allows, and tutti cannot change that: %v; as root on the machine itself, run: sysctl -w %s=%d", hosts, err, l.name(), to)
		case to > from:
			m.logf("%s raised from %d to %d for %d hosts, until the last lab is down", l.name(), from, to, hosts)
		}
	}
}

// The method `name` returns the limit's name for sysctl.
func (l limit) name() string {
	return strings.ReplaceAll(strings.TrimPrefix(l.setting, "/proc/sys/"), "/", ".")
}

// If the limit is lower than the value that the hosts need, the method `raise` sets it to this value. The method
// returns the old and the new value.
func (l limit) raise(hosts int) (from, to int, err error) {
	to = l.machine + l.host*hosts
	if from, err = l.value(); err != nil || from >= to {
		return from, from, err
	}
	first := from
	if before, _, kept := l.kept(); kept {
		first = before
	}
	if err := os.MkdirAll(filepath.Dir(l.before), 0o755); err != nil {
		return from, to, err
	}
	if err := errors.Join(writeDurably(l.before, fmt.Appendf(nil, "%d %d\n", first, to)), syncDir(filepath.Dir(l.before))); err != nil {
		return from, to, err
	}
	return from, to, os.WriteFile(l.setting, fmt.Appendf(nil, "%d\n", to), 0o644)
}

func (l limit) value() (int, error) {
	text, err := os.ReadFile(l.setting)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// The method `kept` returns the limit's value before the first lab, and the value that the last lab set.
func (l limit) kept() (before, raised int, ok bool) {
	text, err := os.ReadFile(l.before)
	if err != nil {
		return 0, 0, false
	}
	n, _ := fmt.Sscanf(string(text), "%d %d", &before, &raised)
	return before, raised, n == 2
}

// The method `restore` sets the limit to its old value. If another program has changed the limit
// after the method `raise`, `restore` leaves the limit unchanged.
func (l limit) restore() error {
	before, raised, kept := l.kept()
	if now, err := l.value(); kept && err == nil && now == raised {
		if err := os.WriteFile(l.setting, fmt.Appendf(nil, "%d\n", before), 0o644); err != nil {
			return err
		}
	}
	if err := os.Remove(l.before); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
