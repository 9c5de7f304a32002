package embed

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tutti-project/tutti"
)

// logger passes the log of the NATS server to slog. It also sends a client's violations to the channel violations,
// because NATS reports them nowhere else.
type logger struct {
	to         *slog.Logger
	failed     func(error)
	violations chan<- violation
}

// violation is a subject that a connection may not use.
type violation struct {
	id   uint64 // of the connection
	what string
}

// violationRE reads a line of the bus. The client chooses the name after the number, so only the beginning and the end
// of the line can be trusted.
var violationRE = regexp.MustCompile(`^\S+ - cid:(\d+) - .*\b(Publish|Subscription) Violation - (?:Subject|Reply) ("(?:[^"\\]|\\.)*")[^"]*(?:Queue: "[^"]*"[^"]*)?$`)

func violationIn(text string) (violation, bool) {
	m := violationRE.FindStringSubmatch(text)
	if m == nil {
		return violation{}, false
	}
	id, err := strconv.ParseUint(m[1], 10, 64)
	subject, unquoted := strconv.Unquote(m[3])
	if err != nil || unquoted != nil {
		return violation{}, false
	}
	verb := map[string]string{"Publish": "publish to ", "Subscription": "listen to "}[m[2]]
	return violation{id: id, what: verb + subject}, true
}

var _ server.Logger = logger{}

func (l logger) Noticef(format string, v ...any) { l.say(l.to.Debug, format, v) }

// Warnf leaves out one warning, because we want what it warns of: TLS from the first byte on.
func (l logger) Warnf(format string, v ...any) {
	if !strings.Contains(format, "TLS Handshake First") {
		l.say(l.to.Warn, format, v)
	}
}

// Errorf also gets what a client did wrong, as `ADDRESS - cid:N - …`. Nobody must act on it, and the audit log has it.
func (l logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if found, ok := violationIn(text); ok {
		select {
		case l.violations <- found:
		default: // a client that does it so often has been reported
		}
	}
	if strings.Contains(text, " - cid:") {
		l.say(l.to.Debug, format, v)
		return
	}
	if writeFailed(format, text) { // not for a client's line: a client can put any text there
		l.failed(tutti.Errorf(tutti.CodeUnavailable, "embedded bus: %s", text))
	}
	l.say(l.to.Error, format, v)
}

// writeFailed recognizes that a stream could not be written. Until the server is restarted, this stream takes no writes
// and tells no client why. Only the log says so (setWriteErrLocked in stream.go of nats-server).
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
