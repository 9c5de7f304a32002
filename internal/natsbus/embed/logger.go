package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tutti-project/tutti"
)

// logger sends the log of the NATS server to slog. logger also sends clients' violations to a channel, because NATS
// reports violations only in its log.
type logger struct {
	to         *slog.Logger
	failed     func(error)
	violations chan<- violation
	open       context.Context // ends with Shutdown
	noFiles    func(context.Context)
}

// violation is a client's use of a subject that the client may not use.
type violation struct {
	id   uint64 // of the connection
	what string
}

// violationRE matches the bus's log line about a violation. The line has the client's name after its number, and the
// client may choose any text as its name. So the expression uses only the beginning and the end of the line.
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

// Warnf drops one warning of NATS: that connections use TLS from the first byte on. We want this.
func (l logger) Warnf(format string, v ...any) {
	if !strings.Contains(format, "TLS Handshake First") {
		l.say(l.to.Warn, format, v)
	}
}

// Errorf also gets lines about clients' violations, in the form `ADDRESS - cid:N - …`. Errorf does not log these
// lines as errors, because no operator must act on them. The violations are in the audit log.
//
// NATS calls Errorf from the goroutine that accepts connections, too, and so Errorf can make this goroutine wait until
// there are files again (see Options.NoFiles).
func (l logger) Errorf(format string, v ...any) {
	if l.noFiles != nil && cannotAccept(format, v) {
		l.noFiles(l.open)
		return
	}
	text := fmt.Sprintf(format, v...)
	if found, ok := violationIn(text); ok {
		select {
		case l.violations <- found:
		default: // the channel is full, so this client's violations have already been reported
		}
	}
	if strings.Contains(text, " - cid:") {
		l.say(l.to.Debug, format, v)
		return
	}
	// the check ignores clients' lines, because a client can put any text into them
	if writeFailed(format, text) {
		l.failed(tutti.Errorf(tutti.CodeUnavailable, "embedded bus: %s", text))
	}
	l.say(l.to.Error, format, v)
}

// cannotAccept reports whether a log line says that no connection can be accepted because too many files are open. The
// line is from acceptError in server.go of nats-server.
func cannotAccept(format string, v []any) bool {
	return strings.HasPrefix(format, "Temporary %s Accept Error") && slices.ContainsFunc(v, func(arg any) bool {
		err, ok := arg.(error)
		return ok && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE))
	})
}

// writeFailed reports whether a log line says that a write to a stream failed. After a failed write,
// the stream refuses all writes until the server is restarted. The stream does not tell its clients the
// reason. Only the log of NATS has the reason (see setWriteErrLocked in stream.go of nats-server).
func writeFailed(format, text string) bool {
	return strings.Contains(format, "critical write error") || strings.Contains(text, syscall.ENOSPC.Error())
}

// Fatalf does not end the process. Start reports the error instead, because the server does not become ready.
func (l logger) Fatalf(format string, v ...any) { l.say(l.to.Error, format, v) }
func (l logger) Debugf(string, ...any)          {}
func (l logger) Tracef(string, ...any)          {}

func (l logger) say(log func(string, ...any), format string, v []any) {
	log("embedded bus", "text", fmt.Sprintf(format, v...))
}
