package embed

import (
	"crypto/tls"

	"github.com/nats-io/nats-server/v2/server"
)

// TLSOf returns the TLS configuration with which a server with the options `o` accepts connections.
func TLSOf(o Options) (*tls.Config, error) {
	opts, _, err := options(o)
	if err != nil {
		return nil, err
	}
	return opts.TLSConfig, nil
}

// Stalls returns how often the server has made its clients wait because another client did not read.
func (s *Server) Stalls() (all int64) {
	list, err := s.nats.Connz(&server.ConnzOptions{})
	if err != nil {
		return -1
	}
	for _, c := range list.Conns {
		all += c.Stalls
	}
	return all
}

// Unread returns how many bytes the server keeps for clients that have not read them.
func (s *Server) Unread() (all int) {
	list, err := s.nats.Connz(&server.ConnzOptions{})
	if err != nil {
		return -1
	}
	for _, c := range list.Conns {
		all += c.Pending
	}
	return all
}
