package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"log/syslog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/server"
)

// auditOut sends the audit trail to another system as it happens. Each act comes at least once, in order. After a kill an
// act may come twice, with the same sequence.
type auditOut struct {
	core  *server.Server
	name  string // names the state file
	state string // file with the position up to which all acts are sent
	open  func() (auditSink, error)
	log   *slog.Logger
}

// auditSink takes lines of JSON. When Close returns without an error, they are delivered.
type auditSink interface {
	Write(line []byte) error
	Close() error
}

// auditAgain is the pause before lines that a sink did not take are sent again.
const auditAgain = 10 * time.Second

// tellAudit sends all acts to the sinks of the options, until ctx ends.
func (s *Server) tellAudit(ctx context.Context, group *errgroup.Group, core *server.Server) {
	begin := func(name string, open func() (auditSink, error)) {
		out := auditOut{core: core, name: name, state: filepath.Join(s.opts.Dir, "audit-"+name+".json"), open: open, log: s.opts.Logger}
		group.Go(func() error { out.run(ctx); return nil })
	}
	if s.opts.AuditFile != "" {
		begin("file", func() (auditSink, error) { return openAuditFile(s.opts.AuditFile) })
	}
	if s.opts.AuditSyslog {
		begin("syslog", openAuditSyslog)
	}
}

// run sends acts until ctx ends. On an error it tries again. It logs the same error only once.
func (o auditOut) run(ctx context.Context) {
	said := ""
	for {
		err := o.tell(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			o.log.Error("the audit trail is not told: it is tried again, and nothing of it is lost", "for", o.name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(auditAgain):
		}
	}
}

func (o auditOut) tell(ctx context.Context) error {
	var last tutti.Position
	raw, err := os.ReadFile(o.state)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the first start
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(raw, &last); err != nil {
			return tutti.Wrap(tutti.CodeDamaged, err, "%s; without it the trail begins now", o.state)
		}
	}
	var sink auditSink
	defer func() {
		if sink != nil {
			_ = sink.Close()
		}
	}()
	return o.core.FollowAudit(ctx, last, func(e api.AuditEntry) error {
		line, err := cli.AuditLine(e)
		if err == nil && sink == nil {
			sink, err = o.open()
		}
		if err != nil {
			return err
		}
		return sink.Write(line)
	}, func(through tutti.Position) error {
		if sink != nil {
			err := sink.Close()
			if sink = nil; err != nil {
				return err
			}
		} else if last.Seq != 0 {
			return nil // nothing was sent: to read these events again costs less than a write
		}
		last = through
		raw, err := json.Marshal(last)
		if err != nil {
			return err
		}
		return durable.WriteFile(o.state, append(raw, '\n'), 0o600)
	})
}

// auditFile appends to a file. The file is opened again for each few lines, so rotating it needs no signal.
type auditFile struct{ *os.File }

// openAuditFile refuses a pipe, because a pipe without a reader would keep the server from ending. It removes a line that a
// full disk or a kill has cut off. That act is sent again.
func openAuditFile(path string) (auditSink, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "--audit-file")
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = tutti.Errorf(tutti.CodeInvalid, "%s is not a regular file", path)
	default:
		err = cutTorn(f, info.Size())
	}
	if err != nil {
		_ = f.Close()
		return nil, tutti.Wrap("", err, "--audit-file")
	}
	return auditFile{f}, nil
}

// maxAuditLine is longer than any line of the trail.
const maxAuditLine = 1 << 20

// cutTorn cuts a file after its last whole line.
func cutTorn(f *os.File, size int64) error {
	from := max(0, size-maxAuditLine)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil {
		return err
	}
	whole := int64(bytes.LastIndexByte(tail, '\n') + 1)
	if from+whole == size || whole == 0 && from > 0 { // or it is not our file
		return nil
	}
	return f.Truncate(from + whole)
}

func (f auditFile) Write(line []byte) error {
	_, err := f.File.Write(append(line, '\n'))
	return err
}

func (f auditFile) Close() error { return errors.Join(f.Sync(), f.File.Close()) }

// auditLog is this machine's syslog.
type auditLog struct{ *syslog.Writer }

func openAuditSyslog() (auditSink, error) {
	w, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_NOTICE, "tutti-audit")
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "--audit-syslog")
	}
	return auditLog{w}, nil
}

func (l auditLog) Write(line []byte) error { return l.Notice(string(line)) }
