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

// tryLock takes an exclusive lock on f. The kernel drops it with the last descriptor of f, so also when all processes
// that have one are killed.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// runAttached runs cmd so that it is killed when this process ends, also by kill -9. The kernel sends this signal when
// the starting thread ends. So the thread is held until the command has ended.
func runAttached(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// setSession puts cmd into its own session, so that no signal of a terminal reaches it.
func setSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// setGroup puts cmd into its own process group and kills the whole group when cmd's context ends. nsenter alone would
// leave its child.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// unmount removes every mount on path. It succeeds if there is no mount, or no path.
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
