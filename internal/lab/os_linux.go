package lab

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// tryLock takes an exclusive lock on f that the kernel drops with the last
// descriptor, so also when the process is killed. Descriptors are not inherited
// by the commands that this package starts.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// runAttached runs cmd so that it dies when this process does, also by kill -9.
// The kernel sends that signal when the starting thread ends, hence the thread
// is held until the command has ended.
func runAttached(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}
