package serverdir

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

const (
	contentFile   = "content"
	contentStream = "TUTTI_BLOBS" // as natsbus calls it
)

// Content is for the content beside the log what head is for the log: up to where it was acknowledged,
// in a file that is written behind each append. It is a witness, and never newer than what is on disk.
type Content struct {
	path string

	mu  sync.Mutex
	seq uint64 // as the file says
}

// OpenContent reads what was acknowledged of the server in dir. A file that cannot be read says nothing.
func OpenContent(dir string) *Content {
	c := &Content{path: filepath.Join(dir, contentFile)}
	raw, err := os.ReadFile(c.path)
	if err != nil {
		return c
	}
	var seq uint64
	if _, err := fmt.Sscanf(string(raw), "%d", &seq); err == nil && string(raw) == contentLine(seq) {
		c.seq = seq
	}
	return c
}

// contentLine is the record: a line of one length.
func contentLine(seq uint64) string {
	text := fmt.Sprintf("%020d", seq)
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// moved keeps what the blobs have acknowledged, or that nobody knows it.
func (c *Content) moved(blobs *natsbus.Blobs) {
	seq, known := blobs.Stored()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !known || seq == c.seq {
		return
	}
	c.seq = seq
	_ = os.WriteFile(c.path, []byte(contentLine(seq)), 0o600) // the next one follows
}

// InFiles verifies, before a bus starts on dir and cuts off what is damaged, that the files have what was
// acknowledged. Only damage is judged: what was deleted is not there, either. CodeDamaged.
func (c *Content) InFiles(dir string) error {
	if c.seq == 0 {
		return nil
	}
	last, damage, err := embed.LastWhole(dir, contentStream)
	if err != nil || damage == "" || last >= c.seq {
		return err
	}
	return tutti.Errorf(tutti.CodeDamaged, "acknowledged content is damaged: %s; a start would cut off everything after it in that file; %s", damage, restoreHint)
}
