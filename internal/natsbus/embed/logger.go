package embed

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// logger hands what the NATS server says to slog.
type logger struct{ to *slog.Logger }

var _ server.Logger = logger{}

func (l logger) Noticef(format string, v ...any) { l.say(l.to.Debug, format, v) }

// Warnf leaves out the one warning that is our intention: everybody speaks TLS
// from the first byte.
func (l logger) Warnf(format string, v ...any) {
	if !strings.Contains(format, "TLS Handshake First") {
		l.say(l.to.Warn, format, v)
	}
}

// Errorf also tells of what a client did wrong, as `ADDRESS - cid:N - …`:
// nothing that somebody must act on.
func (l logger) Errorf(format string, v ...any) {
	if strings.Contains(fmt.Sprintf(format, v...), " - cid:") {
		l.say(l.to.Warn, format, v)
		return
	}
	l.say(l.to.Error, format, v)
}

// Fatalf does not end the process: Start reports that the server is not ready.
func (l logger) Fatalf(format string, v ...any) { l.say(l.to.Error, format, v) }
func (l logger) Debugf(string, ...any)          {}
func (l logger) Tracef(string, ...any)          {}

func (l logger) say(log func(string, ...any), format string, v []any) {
	log("embedded bus", "text", fmt.Sprintf(format, v...))
}
