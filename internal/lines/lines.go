// Package lines stores a list as one blob. The blob is gzipped lines of JSON, one line
// for each element, after a header that describes the elements. The package is pure.
package lines

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
)

// Writer encodes lines. Close returns its first error.
type Writer struct {
	out bytes.Buffer
	zip *gzip.Writer
	enc *json.Encoder
	err error
}

// NewWriter returns a Writer whose first line is the header.
func NewWriter(header any) *Writer {
	w := &Writer{}
	w.zip = gzip.NewWriter(&w.out)
	w.enc = json.NewEncoder(w.zip)
	w.enc.SetEscapeHTML(false) // JSON in the values stays unchanged
	w.Add(header)
	return w
}

// Add adds a line.
func (w *Writer) Add(line any) {
	if w.err == nil {
		w.err = w.enc.Encode(line)
	}
}

// Close returns the written bytes.
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

// Next decodes the next line. Next returns io.EOF if there is no further line, and
// io.ErrUnexpectedEOF if the line is cut off.
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
