package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// tryLock tries to get an exclusive lock on f. The kernel releases the lock when the last descriptor of f is closed,
// even if the processes are killed.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// runAttached runs cmd. The kernel kills cmd when this process ends, even after a kill -9. But the kernel also
// kills cmd when only the thread that started cmd ends. So runAttached keeps its thread until cmd has ended.
func runAttached(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// setSession lets cmd run in its own session, so cmd gets no signals from a terminal.
func setSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// setGroup lets cmd run in its own process group, and kills the whole group when cmd's context ends. Without the
// group, nsenter would be killed but not its child.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// unmount removes all mounts on path. unmount returns no error if there is no mount or the path does not exist.
func unmount(path string) error {
	for {
		err := syscall.Unmount(path, syscall.MNT_DETACH)
		switch {
		case err == nil:
			continue
		case errors.Is(err, syscall.EINVAL), errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return fmt.Errorf("unmount %s: %w", path, err)
	}
}
