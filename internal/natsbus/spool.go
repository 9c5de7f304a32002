package natsbus

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

const (
	maxParcelsPerNode = 8
	maxSpoolPerNode   = 2 * MaxPayload
	maxSpool          = 16 * MaxPayload
	parcelLife        = 10 * time.Minute // the server drops a parcel when nobody has used it for this time
	// maxGets is how often a node may fetch each chunk of an answer. The node may have to repeat a
	// fetch when its connection breaks.
	maxGets = 4
)

// spool stores parcels in files while they are uploaded or downloaded. A restart of the server empties the spool,
// and nodes send their parcels again. Each node has a limit, and all nodes together have another limit.
type spool struct {
	dir string
	now func() time.Time

	mu      sync.Mutex
	entries map[tutti.NodeKey]map[string]*entry
	total   int64
}

// entry is one parcel of one node.
type entry struct {
	parcel
	mu    sync.Mutex // guards the fields below
	file  *os.File
	have  int64
	tries int
	gets  int64 // number of chunks that the node may still fetch, plus 1; 0 if the parcel is not an answer

	used time.Time // guarded by spool.mu
}

// newSpool empties dir.
func newSpool(dir string, now func() time.Time) (*spool, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty the spool: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the spool: %w", err)
	}
	return &spool{dir: dir, now: now, entries: map[tutti.NodeKey]map[string]*entry{}}, nil
}

// The method `close` removes everything.
func (s *spool) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, parcels := range s.entries {
		for id := range parcels {
			s.remove(key, id)
		}
	}
	return os.RemoveAll(s.dir)
}

// The method `open` returns the entry of a parcel, and creates the entry if necessary.
func (s *spool) open(key tutti.NodeKey, p parcel) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if e := s.entries[key][p.id]; e != nil {
		if e.parcel != p {
			return nil, tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: the node announces this id again with another size or digest", p.id)
		}
		e.used = now
		return e, nil
	}
	s.expire(now)
	mine := p.size
	for _, e := range s.entries[key] {
		mine += e.size
	}
	if len(s.entries[key]) >= maxParcelsPerNode || mine > maxSpoolPerNode || !s.room(p.size, mine) {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "content in chunks: no room for %d bytes; try again", p.size)
	}
	file, err := os.CreateTemp(s.dir, "parcel")
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "content in chunks")
	}
	e := &entry{parcel: p, file: file, used: now}
	if s.entries[key] == nil {
		s.entries[key] = map[string]*entry{}
	}
	s.entries[key][p.id] = e
	s.total += p.size
	return e, nil
}

// The method `room` makes room for `size` bytes of a node. The argument `mine` is the number of bytes that the node
// then has. The method takes the room from the node with the most bytes: it removes the least recently used parcel of
// that node. If no node has more than `mine` bytes, it returns false. The announced size of a parcel counts from the
// beginning, even if no chunk has arrived. The caller holds s.mu.
func (s *spool) room(size, mine int64) bool {
	for s.total+size > maxSpool {
		var most tutti.NodeKey
		largest := mine
		for key, parcels := range s.entries {
			has := int64(0)
			for _, e := range parcels {
				has += e.size
			}
			if has > largest {
				most, largest = key, has
			}
		}
		if most == "" {
			return false
		}
		var oldest string
		for id, e := range s.entries[most] {
			if had := s.entries[most][oldest]; had == nil || e.used.Before(had.used) {
				oldest = id
			}
		}
		s.remove(most, oldest)
	}
	return true
}

// find returns the entry with this id, or nil.
func (s *spool) find(key tutti.NodeKey, id string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key][id]
	if e != nil {
		e.used = s.now()
	}
	return e
}

// The method `drop` removes a parcel if the parcel exists.
func (s *spool) drop(key tutti.NodeKey, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key, id)
}

func (s *spool) expire(now time.Time) {
	for key, parcels := range s.entries {
		for id, e := range parcels {
			if now.Sub(e.used) > parcelLife {
				s.remove(key, id)
			}
		}
	}
}

// The method `remove` removes a parcel. The caller holds s.mu. If another goroutine still uses
// the parcel, that goroutine gets an error, because `remove` closes the file.
func (s *spool) remove(key tutti.NodeKey, id string) {
	e := s.entries[key][id]
	if e == nil {
		return
	}
	delete(s.entries[key], id)
	if len(s.entries[key]) == 0 {
		delete(s.entries, key)
	}
	s.total -= e.size
	// ignore a failure, because the next start of the server removes the file
	_ = os.Remove(filepath.Clean(e.file.Name()))
	e.file.Close()
}

// The method `write` appends the chunk if it is the next chunk, and returns how many bytes are stored now. A chunk
// that arrives twice or too early changes nothing.
func (e *entry) write(offset int64, chunk []byte) (int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if offset != e.have || len(chunk) == 0 {
		return e.have, nil
	}
	if e.have+int64(len(chunk)) > e.size {
		return 0, tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: more bytes than the %d announced", e.id, e.size)
	}
	if _, err := e.file.WriteAt(chunk, offset); err != nil {
		return 0, tutti.Wrap(tutti.CodeUnavailable, err, "content in chunks")
	}
	e.have += int64(len(chunk))
	return e.have, nil
}

// The method `needs` reports whether write would store a chunk of this size at this offset.
func (e *entry) needs(offset int64, size int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return offset == e.have && e.have+int64(size) <= e.size
}

// The method `fill` writes the whole content of an answer. Afterwards the node may fetch its chunks.
func (e *entry) fill(content []byte) error {
	_, err := e.write(0, content)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gets = 1 + maxGets*(1+e.size/chunkSize)
	return err
}

// content returns the complete content of a parcel after checking its digest.
func (e *entry) content() ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.have != e.size {
		return nil, tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: only %d of %d bytes have arrived", e.id, e.have, e.size)
	}
	content := make([]byte, e.size)
	if _, err := e.file.ReadAt(content, 0); err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "content in chunks")
	}
	if tutti.DigestOf(content) != e.digest {
		return nil, tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: the digest is not the announced one", e.id)
	}
	return content, nil
}

// The method `tried` counts a call with this parcel that the node has to repeat, and returns the new count.
func (e *entry) tried() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries++
	return e.tries
}

// chunk returns the chunk at the offset. At the end of the content, chunk returns an empty chunk. A
// node may fetch only an answer, and only a limited number of chunks. A fetched chunk does not count
// against the node's rate limit, because the call of the answer has already counted.
func (e *entry) chunk(offset int64) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.gets {
	case 0:
		return nil, tutti.Errorf(tutti.CodeInvalid, "content in chunks %s: the node sent this content, so the node cannot fetch it", e.id)
	case 1:
		return nil, tutti.Errorf(tutti.CodeUnavailable, "content in chunks %s: the node has fetched it too often; call again", e.id)
	}
	e.gets--
	chunk := make([]byte, chunkSize)
	n, err := e.file.ReadAt(chunk, offset)
	if err != nil && err != io.EOF {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "content in chunks")
	}
	return chunk[:n], nil
}
