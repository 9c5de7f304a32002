package retain

import (
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/lines"
)

// A snapshot is stored as gzipped lines of JSON. The first line is a header. After the header there is one
// line for each event, as it was in the log, with its sequence and link.

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

// Writer writes a snapshot. Close returns the first error.
type Writer struct {
	lines  *lines.Writer
	events int
}

// NewWriter begins a snapshot of the events up to an entry.
func NewWriter(through tutti.Entry) *Writer {
	return &Writer{lines: lines.NewWriter(header{Tutti: snapshotKind, Version: 1, Through: through.Seq, Link: through.Link})}
}

// Add adds the next entry that is needed.
func (w *Writer) Add(e tutti.Entry) {
	w.lines.Add(line{e.Seq, e.Link, e.Raw})
	w.events++
}

// Close returns the snapshot and the number of its events.
func (w *Writer) Close() ([]byte, int, error) {
	stored, err := w.lines.Close()
	return stored, w.events, tutti.Wrap(tutti.CodeInternal, err, "encode a snapshot")
}

// Entries yields the entries of a stored snapshot whose sequence is above `after`. Entries stops at the first error.
// Entries returns CodeDamaged if this is not the snapshot that the argument `taken` names, or if its content has
// changed.
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
		var head header
		r, err := lines.NewReader(stored, &head)
		if err != nil || head.Tutti != snapshotKind || head.Version != 1 {
			damaged(err, "this release does not know its format")
			return
		}
		var last uint64
		for {
			var l line
			err := r.Next(&l)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				damaged(err, "")
				return
			}
			if l.Seq <= last || len(l.Event) == 0 {
				damaged(nil, "an event is empty, or does not come after the previous one")
				return
			}
			last = l.Seq
			if l.Seq > after && !yield(tutti.Entry{Seq: l.Seq, Raw: l.Event, Link: l.Link}, nil) {
				return
			}
		}
	}
}
