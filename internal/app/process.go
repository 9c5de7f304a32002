package app

import (
	"net"
	"os"
	"time"
)

// Version is set by the linker.
var Version = "0.1.0-dev"

func now() time.Time { return time.Now().UTC() }

// notify tells systemd, if that started us, how far we are (sd_notify(3)).
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
