package app

import (
	"net"
	"os"
	"syscall"
	"time"
)

// Version is set by the linker.
var Version = "0.1.0-dev"

func now() time.Time { return time.Now().UTC() }

func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// notify tells systemd the state of this process, if systemd has started it (sd_notify(3)).
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return // systemd then reports that the process was never ready
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
