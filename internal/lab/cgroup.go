package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The variable `hierarchies` lists where control groups may be mounted: version 2 alone, version 2 together with
// version 1, and systemd's own hierarchy of version 1. A host has a group in each mounted hierarchy. All processes
// of the host are in this group or in groups below it.
var hierarchies = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"}

func cgroupDirs(name string) []string {
	var dirs []string
	for _, h := range hierarchies {
		if _, err := os.Stat(filepath.Join(h, "cgroup.procs")); err == nil {
			dirs = append(dirs, filepath.Join(h, name))
		}
	}
	return dirs
}

// members returns the processes in the named group and in the groups below it.
func members(name string) ([]int, error) {
	var pids []int
	for _, dir := range cgroupDirs(name) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the group was just removed
			}
			if err != nil || e.Name() != "cgroup.procs" {
				return err
			}
			found, err := readPIDs(path)
			pids = append(pids, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("processes of %s: %w", name, err)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(pids))), nil
}

func readPIDs(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, err
}

// initOf returns the init process of the host with the named group. initOf returns 0 if there is no
// init process, or if systemd has not moved itself into init.scope yet.
func initOf(name string) int {
	for _, dir := range cgroupDirs(name) {
		pids, err := readPIDs(filepath.Join(dir, "payload", "init.scope", "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, pid := range pids {
			if isInit(pid) {
				return pid
			}
		}
	}
	return 0
}

// isInit reports whether pid is the first process of a process namespace.
func isInit(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(ids)
			return len(f) > 1 && f[len(f)-1] == "1"
		}
	}
	return false
}

// These constants are how often killGroup kills, and for how long. killGroup has to kill more than once: a process in
// an uninterruptible call does not end at once, and a process may fork before it is killed.
const (
	killEvery    = 10 * time.Millisecond
	killDeadline = 20 * time.Second
)

// killGroup kills every process of the named group and removes the group.
func killGroup(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killDeadline, fmt.Errorf("processes of %s do not end", name))
	defer cancel()
	for {
		pids, err := members(name)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may already have ended
		}
		if len(pids) == 0 && removeGroup(name) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill %s: %w (left: %v)", name, context.Cause(ctx), pids)
		case <-time.After(killEvery):
		}
	}
}

// removeGroup removes the group with this name and all groups below it, deepest first.
func removeGroup(name string) error {
	for _, top := range cgroupDirs(name) {
		var dirs []string
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
