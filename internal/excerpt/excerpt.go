// Package excerpt reads files that other programs write, within bounds. Puppet is root and executes modules
// that nobody here has checked. A file of Puppet's may be larger than the memory, may consist of one line, or
// may be a pipe without a writer.
package excerpt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/tutti-project/tutti"
)

// Open opens a regular file for reading. Open never waits for a writer. Open returns CodeDamaged if
// the path is not a regular file.
func Open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = tutti.Errorf(tutti.CodeDamaged, "%s is no regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Read returns the content of a file with at most this many bytes. Read returns CodeDamaged if the file
// has more bytes or is not a regular file.
func Read(path string, most int64) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(raw)) > most {
		err = tutti.Errorf(tutti.CodeDamaged, "%s is too large: at most %d bytes", path, most)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// With opens a file of any size and calls the function `read`. The function gets the file, the
// file's size, and the number of bytes that it may keep.
func With(path string, most int64, read func(file io.Reader, size, most int64) ([]byte, error)) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return read(file, info.Size(), most)
}

// Digest returns the digest of a file's content. The file may have any size.
func Digest(path string) (tutti.Digest, error) {
	file, err := Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return tutti.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))), nil
}

// Last returns the last bytes of a file, at most `most` bytes.
func Last(path string, most int64) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-most), most))
}

// Ends returns a file of lines. If the file has more than twice `each` bytes, Ends leaves out the middle. Ends returns
// whole lines from the beginning and from the end of the file, at most `each` bytes from each end. Between the two
// parts, Ends inserts the line that the function `cut` returns. The function `cut` gets the number of bytes that Ends
// left out.
func Ends(path string, each int64, cut func(bytes int64) []byte) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() <= 2*each {
		return io.ReadAll(io.LimitReader(file, 2*each))
	}
	out := make([]byte, each, 2*each+1024)
	if _, err := io.ReadFull(file, out); err != nil {
		return nil, err
	}
	out = out[:bytes.LastIndexByte(out, '\n')+1]
	end := make([]byte, each+1) // one byte more than `each`: if this byte is a line break, a whole line follows
	if _, err := file.ReadAt(end, info.Size()-each-1); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	_, end, _ = bytes.Cut(end, []byte("\n"))
	out = append(append(out, cut(info.Size()-int64(len(out)+len(end)))...), '\n')
	return append(out, end...), nil
}

// Lines calls f for each line of a file, without the line's end. Lines leaves out and counts lines with more than
// `most` bytes. The line is valid until f returns.
func Lines(path string, most int, f func(line []byte)) (long int, err error) {
	file, err := Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	s := Splitter{Most: most}
	buffer := make([]byte, 64<<10)
	for {
		n, err := file.Read(buffer)
		s.Split(buffer[:n], f)
		if errors.Is(err, io.EOF) {
			s.end(f)
			return s.Long, nil
		}
		if err != nil {
			return s.Long, err
		}
	}
}

// Splitter splits pieces of data into lines.
type Splitter struct {
	Most int // maximum bytes of a line
	Long int // number of longer lines, which are left out

	rest []byte
	skip bool // skip until the end of a line that is too long
}

// Split reads the next piece of data, and calls f for each line that ends in this piece.
func (s *Splitter) Split(piece []byte, f func(line []byte)) {
	for {
		line, after, ends := bytes.Cut(piece, []byte("\n"))
		if !s.skip && len(s.rest)+len(line) > s.Most {
			s.skip, s.rest = true, nil
			s.Long++
		}
		switch {
		case !s.skip && ends && len(s.rest) == 0:
			f(line)
		case !s.skip:
			s.rest = append(s.rest, line...)
			if ends {
				f(s.rest)
				s.rest = s.rest[:0]
			}
		case ends:
			s.skip = false
		}
		if !ends {
			return
		}
		piece = after
	}
}

// The method `end` handles a last line that has no line break.
func (s *Splitter) end(f func(line []byte)) {
	if len(s.rest) > 0 {
		f(s.rest)
	}
}
