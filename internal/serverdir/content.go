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
	contentStream = "TUTTI_BLOBS" // the name in natsbus
)

// Content knows which blobs were acknowledged, as Head knows which events were. A file contains the sequence up to
// which blobs were acknowledged. The file is written after each append to the log. Content may be older than the blobs
// on disk, but never newer.
type Content struct {
	path string

	mu  sync.Mutex
	seq uint64 // the sequence in the file
}

// OpenContent reads the content file of the server in dir. A file that cannot be read counts as missing.
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

// contentLine is the file's only line. All versions of this line have the same length.
func contentLine(seq uint64) string {
	text := fmt.Sprintf("%020d", seq)
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// The method `moved` writes the sequence up to which blobs were acknowledged. The method writes
// nothing if this sequence is unknown.
func (c *Content) moved(blobs *natsbus.Blobs) {
	seq, known := blobs.Stored()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !known || seq == c.seq {
		return
	}
	c.seq = seq
	_ = os.WriteFile(c.path, []byte(contentLine(seq)), 0o600) // after an error, the file is out of date until the next change
}

// InFiles verifies that the files contain all acknowledged blobs. InFiles must run before a bus starts on dir, because
// the bus cuts off damaged ends. Missing blobs without damage are not an error, because blobs are also deleted.
// InFiles returns CodeDamaged if acknowledged blobs are lost.
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
