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

// auditOut sends the audit trail to another system while it grows. auditOut sends each act at least once, in order.
// After a kill, auditOut may send an act twice, with the same sequence.
type auditOut struct {
	core  *server.Server
	name  string // names the state file
	state string // file with the position up to which all acts have been sent
	open  func() (auditSink, error)
	log   *slog.Logger
}

// auditSink accepts lines of JSON. If Close returns no error, all lines have been delivered.
type auditSink interface {
	Write(line []byte) error
	Close() error
}

// auditAgain is the pause before auditOut tries again after an error of a sink.
const auditAgain = 10 * time.Second

// tellAudit sends all acts to the sinks in the options, until ctx ends.
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

// The method `run` sends acts until ctx ends. After an error, run tries again. If the same error comes again, run
// does not log it again.
func (o auditOut) run(ctx context.Context) {
	said := ""
	for {
		err := o.tell(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			o.log.Error("the audit trail was not sent; the server tries again, and no act gets lost", "for", o.name, "error", err)
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
			return tutti.Wrap(tutti.CodeDamaged, err, "%s; if you delete the file, the trail begins now", o.state)
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
			return nil // no act was sent; after a restart, reading these events again costs less than writing the file now
		}
		last = through
		raw, err := json.Marshal(last)
		if err != nil {
			return err
		}
		return durable.WriteFile(o.state, append(raw, '\n'), 0o600)
	})
}

// auditFile appends lines to a file. auditFile opens the file again after every few lines, so a rotation of the file
// needs no signal to the server.
type auditFile struct{ *os.File }

// openAuditFile refuses a pipe. If nobody reads a pipe, a write to it never returns, and the server could not end.
// openAuditFile removes an incomplete last line, which a full disk or a kill may have left. The server sends the act
// of that line again.
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

// cutTorn truncates a file after its last complete line.
func cutTorn(f *os.File, size int64) error {
	from := max(0, size-maxAuditLine)
	tail := make([]byte, size-from)
	if _, err := f.ReadAt(tail, from); err != nil {
		return err
	}
	whole := int64(bytes.LastIndexByte(tail, '\n') + 1)
	// no line break within the longest possible line: the file is not a trail, so do not change it
	if from+whole == size || whole == 0 && from > 0 {
		return nil
	}
	return f.Truncate(from + whole)
}

func (f auditFile) Write(line []byte) error {
	_, err := f.File.Write(append(line, '\n'))
	return err
}

func (f auditFile) Close() error { return errors.Join(f.Sync(), f.File.Close()) }

// auditLog is a connection to this machine's syslog.
type auditLog struct{ *syslog.Writer }

func openAuditSyslog() (auditSink, error) {
	w, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_NOTICE, "tutti-audit")
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "--audit-syslog")
	}
	return auditLog{w}, nil
}

func (l auditLog) Write(line []byte) error { return l.Notice(string(line)) }
