// Package lines is how lists of things are stored as one blob: gzipped lines of
// JSON, one for each, behind a header that says what they are. It is pure.
package lines

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
)

// Writer encodes lines. Its first error is that of Close.
type Writer struct {
	out bytes.Buffer
	zip *gzip.Writer
	enc *json.Encoder
	err error
}

// NewWriter begins with a header.
func NewWriter(header any) *Writer {
	w := &Writer{}
	w.zip = gzip.NewWriter(&w.out)
	w.enc = json.NewEncoder(w.zip)
	w.enc.SetEscapeHTML(false) // what is JSON already stays as it is
	w.Add(header)
	return w
}

// Add adds a line.
func (w *Writer) Add(line any) {
	if w.err == nil {
		w.err = w.enc.Encode(line)
	}
}

// Close returns what was written.
func (w *Writer) Close() ([]byte, error) {
	err := errors.Join(w.err, w.zip.Close())
	return w.out.Bytes(), err
}

// Reader decodes what a Writer wrote.
type Reader struct{ lines *bufio.Reader }

// NewReader decodes the header.
func NewReader(stored []byte, header any) (*Reader, error) {
	unzip, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, err
	}
	r := &Reader{bufio.NewReaderSize(unzip, 1<<16)}
	return r, r.Next(header)
}

// Next decodes the next line. io.EOF: there is none; a line that is cut off is
// io.ErrUnexpectedEOF.
func (r *Reader) Next(into any) error {
	raw, err := r.lines.ReadBytes('\n')
	if errors.Is(err, io.EOF) && len(raw) > 0 {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
