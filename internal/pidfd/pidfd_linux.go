package pidfd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Wait waits until the process is gone, and then returns nil. Wait also returns nil if
// the process never existed. If ctx ends first, Wait returns the cause.
func Wait(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	quit, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(quit)
	var polling sync.WaitGroup
	defer polling.Wait()
	gone := make(chan error, 1)
	polling.Go(func() { gone <- poll(fd, quit) })
	select {
	case err := <-gone:
		return err
	case <-ctx.Done():
		_, _ = unix.Write(quit, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		return context.Cause(ctx)
	}
}

func poll(fds ...int) error {
	polled := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} // descriptors are small
	}
	for {
		_, err := unix.Poll(polled, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
