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

// logger hands what the NATS server says to slog. What a client did without a right
// to goes to violations, too: NATS tells of it nowhere else.
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

// violationRE reads a line of the bus. Behind the number the client says its own
// name, so that only the beginning and the end are to be believed.
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

// Warnf leaves out the one warning that is our intention: everybody speaks TLS
// from the first byte.
func (l logger) Warnf(format string, v ...any) {
	if !strings.Contains(format, "TLS Handshake First") {
		l.say(l.to.Warn, format, v)
	}
}

// Errorf also tells of what a client did wrong, as `ADDRESS - cid:N - …`:
// nothing that somebody must act on, and the audit log has it.
func (l logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if found, ok := violationIn(text); ok {
		select {
		case l.violations <- found:
		default: // whoever does it so often is known already
		}
	}
	if strings.Contains(text, " - cid:") {
		l.say(l.to.Debug, format, v)
		return
	}
	if writeFailed(format, text) { // not of a client: that says what it likes
		l.failed(tutti.Errorf(tutti.CodeUnavailable, "embedded bus: %s", text))
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
