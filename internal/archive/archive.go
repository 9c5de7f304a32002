// Package archive defines the file format of a server's backup. An archive is a tar of
//
//	backup.json          what it is, and as of which event
//	files/…              the server's configuration and identity
//	log/…                the log's entries as lines of JSON, with their links
//	blobs/HEX            the content that they need
//	end.json             the digest of all that is before it
//
// in that order. If end.json is missing or does not fit, the archive was cut off or changed, and is invalid. Read
// verifies everything in the archive.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

const (
	fileHead  = "backup.json"
	fileEnd   = "end.json"
	version   = 1
	logMember = 4 << 20 // a member of log/ gets no more lines after this many bytes
	maxMember = 2 << 30
)

// Head describes what a backup contains.
type Head struct {
	Version int       `json:"v"`
	Release string    `json:"release"`
	MadeAt  time.Time `json:"made_at"`
	Host    string    `json:"host"` // the name by which nodes and operators reach the server
	// After is the sequence of the last event that the log has dropped, and Link is the link of this event. After is 0
	// if the log is complete.
	After uint64       `json:"after,omitempty"`
	Link  tutti.Digest `json:"link,omitempty"`
}

// End is the content of the end marker.
type End struct {
	Digest  string       `json:"digest"`
	Seq     uint64       `json:"seq"` // of the last entry
	Link    tutti.Digest `json:"link"`
	Entries int          `json:"entries"`
	Blobs   int          `json:"blobs"`
}

type line struct {
	Seq  uint64          `json:"seq"`
	Link tutti.Digest    `json:"link"`
	Raw  json.RawMessage `json:"event"`
}

// Writer writes an archive. The order of the calls is: files, then entries, then blobs,
// then Close.
type Writer struct {
	tar  *tar.Writer
	sum  hash.Hash
	at   time.Time
	logs int
	log  bytes.Buffer
	end  End
}

// NewWriter begins an archive.
func NewWriter(to io.Writer, head Head) (*Writer, error) {
	w := &Writer{tar: tar.NewWriter(to), sum: sha256.New(), at: head.MadeAt, end: End{Seq: head.After, Link: head.Link}}
	head.Version = version
	raw, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return w, w.member(fileHead, raw)
}

func (w *Writer) member(name string, content []byte) error {
	note(w.sum, name, content)
	err := w.tar.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o600, ModTime: w.at, Format: tar.FormatPAX})
	if err == nil {
		_, err = w.tar.Write(content)
	}
	return tutti.Wrap("", err, "write the backup")
}

func note(sum hash.Hash, name string, content []byte) {
	fmt.Fprintf(sum, "%s\x00%d\x00", name, len(content))
	sum.Write(content)
}

// File adds a file from the server's directory.
func (w *Writer) File(name string, content []byte) error { return w.member("files/"+name, content) }

// Entry adds the next entry of the log.
func (w *Writer) Entry(e tutti.Entry) error {
	enc := json.NewEncoder(&w.log)
	enc.SetEscapeHTML(false) // do not change the bytes, because the link is their digest
	if err := enc.Encode(line{e.Seq, e.Link, e.Raw}); err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "event %d", e.Seq)
	}
	w.end.Seq, w.end.Link = e.Seq, e.Link
	w.end.Entries++
	if w.log.Len() < logMember {
		return nil
	}
	return w.flush()
}

func (w *Writer) flush() error {
	if w.log.Len() == 0 {
		return nil
	}
	w.logs++
	err := w.member(fmt.Sprintf("log/%08d.jsonl", w.logs), w.log.Bytes())
	w.log.Reset()
	return err
}

// Blob adds content that the entries need.
func (w *Writer) Blob(content []byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.end.Blobs++
	return w.member("blobs/"+tutti.DigestOf(content).Hex(), content)
}

// Close writes the end marker. Without the end marker, the file is not a valid archive.
func (w *Writer) Close() (End, error) {
	if err := w.flush(); err != nil {
		return End{}, err
	}
	w.end.Digest = fmt.Sprintf("%x", w.sum.Sum(nil))
	raw, err := json.Marshal(w.end)
	if err == nil {
		err = w.member(fileEnd, raw)
	}
	if err == nil {
		err = tutti.Wrap("", w.tar.Close(), "write the backup")
	}
	return w.end, err
}

// Handler gets the contents of an archive in their order. If one of the functions is nil, Read skips the contents that
// this function would get.
type Handler struct {
	File  func(name string, content []byte) error
	Entry func(tutti.Entry) error
	Blob  func(content []byte) error
}

// Read reads an archive to its end and verifies all of it: the digests, the links, and that nothing is missing. Read
// returns CodeInvalid if the archive is not complete. After an error, the caller must not use any content that its
// handler has got before.
func Read(from io.Reader, h Handler) (Head, End, error) {
	r := &reader{Handler: h, sum: sha256.New()}
	err := r.read(tar.NewReader(from))
	if err != nil && tutti.CodeOf(err) == tutti.CodeInternal && !r.handlers {
		err = tutti.Wrap(tutti.CodeInvalid, err, "the backup is not whole")
	}
	return r.head, r.got, err
}

type reader struct {
	Handler
	sum      hash.Hash
	head     Head
	got      End
	handlers bool // the error comes from a handler
}

func broken(format string, args ...any) error {
	return tutti.Errorf(tutti.CodeInvalid, "the backup is not whole: "+format, args...)
}

func (r *reader) read(from *tar.Reader) error {
	for first := true; ; first = false {
		member, err := from.Next()
		if errors.Is(err, io.EOF) {
			return broken("it has no end; it was cut off")
		}
		if err != nil {
			return err
		}
		if member.Size > maxMember || !fs.ValidPath(member.Name) {
			return broken("member %q of %d bytes", member.Name, member.Size)
		}
		content, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		if member.Name == fileEnd {
			return r.finish(content)
		}
		note(r.sum, member.Name, content)
		if first != (member.Name == fileHead) {
			return broken("it does not begin with %s", fileHead)
		}
		if err := r.member(member.Name, content); err != nil {
			return err
		}
	}
}

func (r *reader) member(name string, content []byte) error {
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case fileHead:
		if err := json.Unmarshal(content, &r.head); err != nil {
			return err
		}
		r.got.Seq, r.got.Link = r.head.After, r.head.Link
		if r.head.Version != version {
			return tutti.Errorf(tutti.CodeInvalid, "the backup has version %d, but this release reads only version %d", r.head.Version, version)
		}
		return nil
	case "files":
		return r.hand(r.File != nil, func() error { return r.File(path.Clean(rest), content) })
	case "log":
		return r.entries(content)
	case "blobs":
		if tutti.DigestOf(content).Hex() != rest {
			return broken("content %s has another digest", rest)
		}
		r.got.Blobs++
		return r.hand(r.Blob != nil, func() error { return r.Blob(content) })
	}
	return broken("it has a member %q", name)
}

func (r *reader) hand(wanted bool, f func() error) error {
	if !wanted {
		return nil
	}
	err := f()
	r.handlers = err != nil
	return err
}

func (r *reader) entries(content []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, maxMember)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return err
		}
		if l.Seq <= r.got.Seq || l.Link != tutti.Link(r.got.Link, l.Raw) {
			return broken("event %d does not fit the one before it, %d", l.Seq, r.got.Seq)
		}
		r.got.Seq, r.got.Link = l.Seq, l.Link
		r.got.Entries++
		err := r.hand(r.Entry != nil, func() error {
			return r.Entry(tutti.Entry{Seq: l.Seq, Raw: l.Raw, Link: l.Link})
		})
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

func (r *reader) finish(content []byte) error {
	var says End
	if err := json.Unmarshal(content, &says); err != nil {
		return err
	}
	r.got.Digest = fmt.Sprintf("%x", r.sum.Sum(nil))
	if says != r.got {
		return broken("its end marker describes %+v, but its content is %+v", says, r.got)
	}
	return nil
}
