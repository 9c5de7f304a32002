package retain

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/tutti-project/tutti"
)

// A snapshot is stored as gzipped lines of JSON: a header, then one line for each
// event as the log had it, with its sequence and link.

type header struct {
	Tutti   string       `json:"tutti"`
	Version int          `json:"v"`
	Through uint64       `json:"through"`
	Link    tutti.Digest `json:"link"`
}

const snapshotKind = "snapshot"

type line struct {
	Seq   uint64          `json:"seq"`
	Link  tutti.Digest    `json:"link"`
	Event json.RawMessage `json:"event"`
}

// Writer encodes a snapshot. Its first error is that of Close.
type Writer struct {
	out    bytes.Buffer
	zip    *gzip.Writer
	lines  *json.Encoder
	events int
	err    error
}

// NewWriter begins the snapshot of the events up to an entry.
func NewWriter(through tutti.Entry) *Writer {
	w := &Writer{}
	w.zip = gzip.NewWriter(&w.out)
	w.lines = json.NewEncoder(w.zip)
	w.lines.SetEscapeHTML(false) // events stay as they are
	w.err = w.lines.Encode(header{Tutti: snapshotKind, Version: 1, Through: through.Seq, Link: through.Link})
	return w
}

// Add adds the next entry that is needed.
func (w *Writer) Add(e tutti.Entry) {
	if w.err == nil {
		w.err = w.lines.Encode(line{e.Seq, e.Link, e.Raw})
		w.events++
	}
}

// Close returns the snapshot and how many events it has.
func (w *Writer) Close() ([]byte, int, error) {
	err := errors.Join(w.err, w.zip.Close())
	return w.out.Bytes(), w.events, tutti.Wrap(tutti.CodeInternal, err, "encode a snapshot")
}

// Entries yields the entries of a stored snapshot after a sequence. It ends with
// the first error, CodeDamaged: the snapshot is not the one that taken names, as
// it was stored.
func Entries(taken tutti.SnapshotTaken, stored []byte, after uint64) iter.Seq2[tutti.Entry, error] {
	return func(yield func(tutti.Entry, error) bool) {
		damaged := func(err error, what string) {
			if err == nil {
				err = errors.New(what)
			}
			yield(tutti.Entry{}, tutti.Wrap(tutti.CodeDamaged, err, "the snapshot of the events up to %d (blob %s) is damaged", taken.Through, taken.State))
		}
		if got := tutti.DigestOf(stored); got != taken.State {
			damaged(nil, "it has the digest "+string(got))
			return
		}
		unzip, err := gzip.NewReader(bytes.NewReader(stored))
		if err != nil {
			damaged(err, "")
			return
		}
		lines := bufio.NewReaderSize(unzip, 1<<16)
		var head header
		if err := readLine(lines, &head); err != nil || head.Tutti != snapshotKind || head.Version != 1 {
			damaged(err, "it is none that this release knows")
			return
		}
		var last uint64
		for {
			var l line
			err := readLine(lines, &l)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				damaged(err, "")
				return
			}
			if l.Seq <= last || len(l.Event) == 0 {
				damaged(nil, "an event is empty, or not behind the one before it")
				return
			}
			last = l.Seq
			if l.Seq > after && !yield(tutti.Entry{Seq: l.Seq, Raw: l.Event, Link: l.Link}, nil) {
				return
			}
		}
	}
}

// readLine decodes the next line; io.EOF: there is none.
func readLine(r *bufio.Reader, into any) error {
	raw, err := r.ReadBytes('\n')
	if errors.Is(err, io.EOF) && len(raw) > 0 {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
