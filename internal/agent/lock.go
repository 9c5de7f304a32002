package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/pidfd"
)

// lockTimeout is how long a run waits for another Puppet.
const lockTimeout = time.Hour

// lockWait waits until the lock of another Puppet may be free. The lock may be free when its file
// changes or is removed, or when the owner of the lock ends. A killed owner does not remove the
// file. After the wait, the launcher tries again to take the lock, by Puppet's own rule.
func (s *socket) lockWait(ctx context.Context, req request) (response, error) {
	if req.Path == "" {
		return nil, tutti.Errorf(tutti.CodeInvalid, "lock_wait without a path")
	}
	deadline := s.spec.StartedAt.Add(lockTimeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	released, err := waitLock(ctx, req.Path, req.PID, func() {
		s.logger.Info("waiting for the lock of another Puppet", "pid", req.PID, "path", req.Path)
	})
	if err != nil {
		return nil, err
	}
	return response{"released": released}, nil
}

// waitLock calls the function `watching` when the file exists and waitLock watches it. From this
// moment on, waitLock misses no change.
func waitLock(ctx context.Context, path string, pid int, watching func()) (bool, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return false, err
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return false, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return true, nil // the file was gone before the watch began
	}
	watching()
	waitCtx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	gone := make(chan error, 1)
	waiting.Go(func() { gone <- pidfd.Wait(waitCtx, pid) })
	for {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return false, nil
			}
			return false, context.Cause(ctx)
		case err := <-gone:
			if ctx.Err() != nil {
				continue // the wait has ended because of ctx
			}
			return err == nil, err
		case event := <-watcher.Events:
			if event.Name == path {
				return true, nil
			}
		case err := <-watcher.Errors:
			return false, err
		}
	}
}
