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

// limit is a kernel limit that all hosts of all labs share, because they have no user namespaces: they all count as the
// same root. Beyond it, systemd, udev and agents of a booting host fail with errors that do not name it. It is raised
// for the labs. Its old value is kept outside of any lab until the last lab is gone. All callers of raise and restore
// hold the machine's lock.
type limit struct {
	setting string // its file in /proc/sys
	before  string // file that keeps what the limit was, and what it was raised to
	machine int    // for the machine itself
	host    int    // for each host
}

// The kernel's default limit of instances is 128. A host without any service has six, five of them systemd's, with 23 watches
// (find /proc/[0-9]*/fd -lname '*inotify*', trixie). Agents, Puppet and services have more. The figures leave room for them.
var limits = []limit{
	{setting: "/proc/sys/fs/inotify/max_user_instances", before: runDir + "/inotify_instances", machine: 32, host: 16},
	{setting: "/proc/sys/fs/inotify/max_user_watches", before: runDir + "/inotify_watches", machine: 8192, host: 1024},
}

// raiseLimits makes room for that many hosts. If a limit cannot be raised, it only logs that: the hosts may still work.
func (m Machine) raiseLimits(all []limit, hosts int) {
	for _, l := range all {
		switch from, to, err := l.raise(hosts); {
		case err != nil:
			m.logf("%d hosts may need more than the kernel allows, and that cannot be changed: %v; as root on the machine itself: sysctl -w %s=%d", hosts, err, l.name(), to)
		case to > from:
			m.logf("%s raised from %d to %d for %d hosts, until the last lab is down", l.name(), from, to, hosts)
		}
	}
}

// name is the limit's name for sysctl.
func (l limit) name() string {
	return strings.ReplaceAll(strings.TrimPrefix(l.setting, "/proc/sys/"), "/", ".")
}

// raise sets the limit to at least what the hosts need. It returns the old and the new value.
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

// kept returns the limit before any lab, and the value to which the last lab has raised it.
func (l limit) kept() (before, raised int, ok bool) {
	text, err := os.ReadFile(l.before)
	if err != nil {
		return 0, 0, false
	}
	n, _ := fmt.Sscanf(string(text), "%d %d", &before, &raised)
	return before, raised, n == 2
}

// restore restores the limit, unless another program has changed it since.
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
