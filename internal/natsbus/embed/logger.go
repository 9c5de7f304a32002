package embed

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tutti-project/tutti"
)

// logger hands what the NATS server says to slog.
type logger struct {
	to     *slog.Logger
	failed func(error)
}

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
	if text := fmt.Sprintf(format, v...); writeFailed(format, text) {
		l.failed(tutti.Errorf(tutti.CodeUnavailable, "embedded bus: %s", text))
	}
	if strings.Contains(fmt.Sprintf(format, v...), " - cid:") {
		l.say(l.to.Warn, format, v)
		return
	}
	l.say(l.to.Error, format, v)
}

// writeFailed recognizes that a stream could not be written. It takes nothing
// more until the server is started again, and answers nobody why: the log is
// where the bus says so (setWriteErrLocked in its stream.go).
func writeFailed(format, text string) bool {
	return strings.Contains(format, "critical write error") || strings.Contains(text, syscall.ENOSPC.Error())
}

// Fatalf does not end the process: Start reports that the server is not ready.
func (l logger) Fatalf(format string, v ...any) { l.say(l.to.Error, format, v) }
func (l logger) Debugf(string, ...any)          {}
func (l logger) Tracef(string, ...any)          {}

func (l logger) say(log func(string, ...any), format string, v []any) {
	log("embedded bus", "text", fmt.Sprintf(format, v...))
}
