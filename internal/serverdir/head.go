package serverdir

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/past"
)

const (
	// HeadFile is a file next to the log. HeadFile contains the last acknowledged place
	// of the log.
	HeadFile  = "head"
	logStream = "TUTTI_LOG" // the name in natsbus
)

// Head is the last acknowledged end of the log, in a file next to the log. With this
// file, the server can distinguish a new log from a log that was cut off, set back or
// lost. The file is written after each append but never fsynced. The file may therefore
// be older than the log, but never newer.
type Head struct {
	File   *os.File
	logger *slog.Logger

	mu   sync.Mutex
	seq  uint64
	link tutti.Digest
}

// OpenHead reads the head of the server in dir, or begins a new head. OpenHead treats a
// damaged head as missing, because the server only compares the head with the log.
func OpenHead(dir string, logger *slog.Logger) (*Head, error) {
	f, err := os.OpenFile(filepath.Join(dir, HeadFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	h := &Head{File: f, logger: logger}
	raw := make([]byte, len(headLine(0, tutti.DigestOf(nil))))
	n, err := f.ReadAt(raw, 0)
	if n == 0 {
		return h, nil
	}
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "%d %s", &h.seq, &h.link)
	}
	if err != nil || string(raw) != headLine(h.seq, h.link) {
		logger.Warn("the file head is damaged and ignored: it is unknown whether the log has lost its end", "file", f.Name())
		h.seq, h.link = 0, ""
	}
	return h, nil
}

// headLine is the file's only line. All versions of this line have the same length.
func headLine(seq uint64, link tutti.Digest) string {
	text := fmt.Sprintf("%020d %s", seq, link)
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// The method `moved` writes the acknowledged end of the log to the file.
func (h *Head) moved(seq uint64, link tutti.Digest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq <= h.seq {
		return
	}
	h.seq, h.link = seq, link
	if _, err := h.File.WriteAt([]byte(headLine(seq, link)), 0); err != nil {
		h.logger.Error("the end of the log could not be written to the file head", "error", err)
	}
}

// InFiles verifies that the log's files contain all acknowledged events. InFiles must run
// before a bus starts on dir, because the bus cuts off damaged ends.
func (h *Head) InFiles(dir string) error {
	if h.seq == 0 {
		return nil
	}
	last, damage, err := embed.LastWhole(dir, logStream)
	if err != nil || last >= h.seq {
		return err
	}
	return h.lost(last, damage)
}

// InLog verifies that the log contains the last acknowledged event.
func (h *Head) InLog(ctx context.Context, l *natsbus.Log) error {
	end := l.End()
	switch {
	case h.seq == 0 && end > 0:
		h.logger.Warn("the log has no file head: the server cannot tell whether the log has lost its end; it makes a new file head", "seq", end)
		return nil
	case end < h.seq:
		return h.lost(end, "")
	case h.seq == 0:
		return nil
	}
	for e, err := range l.Entries(ctx, h.seq-1) {
		switch {
		case tutti.CodeOf(err) == tutti.CodeNotFound:
			return nil // the event was deleted, because the snapshot replaces it
		case err != nil:
			return err
		case e.Seq != h.seq || e.Link != h.link:
			return tutti.Errorf(tutti.CodeDamaged, "the log is another one: at event %d it has the link %s, but %s was acknowledged; %s", h.seq, e.Link, h.link, restoreHint)
		}
		return nil
	}
	return h.lost(end, "")
}

const restoreHint = "nothing was changed; put back a backup: tutti server restore"

func (h *Head) lost(end uint64, damage string) error {
	if damage != "" {
		damage = " (damaged: " + damage + ")"
	}
	return tutti.Errorf(tutti.CodeDamaged, "the log ends at event %d, but event %d was acknowledged%s; %s", end, h.seq, damage, restoreHint)
}

// Witnessed is a log that notes each acknowledged append in a Head.
type Witnessed struct {
	*natsbus.Log
	head    *Head
	content *Content
	blobs   *natsbus.Blobs
}

var _ past.Tearing = Witnessed{}

// Witness returns the log together with the objects that note its appends.
func Witness(log *natsbus.Log, head *Head, content *Content, blobs *natsbus.Blobs) Witnessed {
	return Witnessed{log, head, content, blobs}
}

// Append implements tutti.Log.
func (w Witnessed) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	seq, err := w.Log.Append(ctx, last, events)
	if err == nil {
		w.head.moved(seq, events[len(events)-1].Link)
		w.content.moved(w.blobs)
	}
	return seq, err
}
