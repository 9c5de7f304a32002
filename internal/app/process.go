package app

import (
	"net"
	"os"
	"time"
)

// Version is set by the linker when a release is built.
var Version = "0.1.0-dev"

func now() time.Time { return time.Now().UTC() }

// notify reports the state of this process to systemd, if systemd started the
// process (sd_notify(3)).
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return // on an error, systemd reports that the process did not become ready
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
