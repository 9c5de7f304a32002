package lab

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/tutti-project/tutti"
)

// Down removes the named lab. Down ends the lab's processes, removes mounts, namespaces, the bridge, firewall rules
// and files, and restores the kernel's settings. Down needs only the state file, so it also works after an
// interrupted Up. If the name is empty, there must be only one lab.
func (m Machine) Down(ctx context.Context, name string) error {
	if err := Check(); err != nil {
		return err
	}
	name, err := m.only(name)
	if err != nil {
		return err
	}
	lock, err := m.lock(ctx, lockFile)
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := m.load(name)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		if _, statErr := os.Stat(m.labDir(name)); statErr == nil {
			return os.RemoveAll(m.labDir(name)) // Up was killed before it had created anything
		}
	}
	if err != nil {
		return err
	}
	return tutti.Wrap("", s.remove(ctx, commands{lock: lock}), "take down lab %q", name)
}

// The method `remove` deletes everything that the state `s` names and that still exists. It deletes
// the file of this state last. The caller holds the machine's lock.
func (s state) remove(ctx context.Context, x commands) error {
	err := eachHost(s, func(i int) error {
		return errors.Join(killGroup(ctx, s.cgroup(i)), killGroup(ctx, s.relayGroup(i)))
	})
	if err != nil {
		return err
	}
	if err := s.disconnect(ctx, x); err != nil {
		return err
	}
	if err := restoreSettings(); err != nil {
		return err
	}
	return s.removeFiles()
}

// removeFiles removes the lab's directory. removeFiles deletes the state file last, so Down can be repeated after a
// failure.
func (s state) removeFiles() error {
	if err := os.RemoveAll(s.dir + "/hosts"); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

// The method `only` returns the given name, or the name of the only lab if the given name is empty.
func (m Machine) only(name string) (string, error) {
	if name != "" {
		return name, validateLabName(name)
	}
	names, err := m.names()
	if err != nil {
		return "", err
	}
	switch len(names) {
	case 0:
		return "", tutti.Errorf(tutti.CodeNotFound, "there is no lab: make one with `tutti lab up FILE`")
	case 1:
		return names[0], nil
	}
	return "", tutti.Errorf(tutti.CodeInvalid, "there are several labs, so name one of them: %s", strings.Join(names, ", "))
}
