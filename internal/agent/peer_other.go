//go:build !linux

package agent

import (
	"net"

	"github.com/tutti-project/tutti"
)

// peerOf returns an error, because agents run only on Linux.
func peerOf(*net.UnixConn) (peer, error) {
	return peer{}, tutti.Errorf(tutti.CodeUnavailable, "the peer of a connection is known only on Linux")
}
