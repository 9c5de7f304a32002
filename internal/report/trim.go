package report

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"

	"github.com/tutti-project/tutti"
)

// Max is the largest report that is kept, in bytes, because the server accepts no larger content.
const Max = 64 << 20

// Keep returns the part of a report that is kept. If the report has more than `most` bytes, Keep returns the result of
// Trim. A smaller report is kept completely.
func Keep(in io.Reader, size, most int64) ([]byte, error) {
	if size > most {
		return Trim(in, int(most))
	}
	return io.ReadAll(io.LimitReader(in, most))
}

// Trim copies a report in JSON without its messages. The messages are also in the log of the run. Trim returns
// CodeDamaged if the copy has more than `most` bytes, or if the report ends too early. Trim copies all other invalid
// content without a change.
func Trim(in io.Reader, most int) ([]byte, error) {
	t := &trimmer{in: bufio.NewReaderSize(in, 64<<10), most: most}
	err := t.object()
	if errors.Is(err, io.EOF) {
		err = tutti.Errorf(tutti.CodeDamaged, "the report ends too early")
	}
	if err != nil {
		return nil, err
	}
	return t.out.Bytes(), nil
}

// trimmer copies JSON. The trimmer has nothing in memory except the copy.
type trimmer struct {
	in   *bufio.Reader
	out  bytes.Buffer
	most int
}

// The method `object` copies the outermost object.
func (t *trimmer) object() error {
	if c, err := t.next(); err != nil || c != '{' {
		return cmp.Or(err, tutti.Errorf(tutti.CodeDamaged, "the report does not begin with {"))
	}
	if err := t.put('{', true); err != nil {
		return err
	}
	for {
		c, err := t.next()
		if err != nil {
			return err
		}
		if c != '"' {
			if err := t.put(c, true); err != nil || c == '}' {
				return err
			}
			continue
		}
		at := t.out.Len()
		if err := t.text(true); err != nil {
			return err
		}
		if string(t.out.Bytes()[at:]) != `"logs"` {
			err = t.value(true)
		} else if err = t.value(false); err == nil {
			_, err = t.out.WriteString(`:[]`)
		}
		if err != nil {
			return err
		}
	}
}

// The method `value` reads the rest of a member: a colon, and one value.
func (t *trimmer) value(keep bool) error {
	depth := 0
	for {
		c, err := t.next()
		switch {
		case err != nil:
			return err
		case depth == 0 && (c == ',' || c == '}'):
			return t.in.UnreadByte()
		case c == '"':
			err = t.text(keep)
		case c == '{', c == '[':
			depth++
			err = t.put(c, keep)
		case c == '}', c == ']':
			depth--
			err = t.put(c, keep)
		default:
			err = t.put(c, keep)
		}
		if err != nil {
			return err
		}
	}
}

// The method `text` reads the rest of a string after its first quote.
func (t *trimmer) text(keep bool) error {
	if err := t.put('"', keep); err != nil {
		return err
	}
	for escaped := false; ; {
		c, err := t.in.ReadByte()
		if err == nil {
			err = t.put(c, keep)
		}
		if err != nil || c == '"' && !escaped {
			return err
		}
		escaped = c == '\\' && !escaped
	}
}

// next returns the next byte that is not white space.
func (t *trimmer) next() (byte, error) {
	for {
		c, err := t.in.ReadByte()
		if err != nil || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c, err
		}
	}
}

func (t *trimmer) put(c byte, keep bool) error {
	if !keep {
		return nil
	}
	if t.out.Len() == t.most {
		return tutti.Errorf(tutti.CodeDamaged, "without its messages the report has more than %d bytes", t.most)
	}
	return t.out.WriteByte(c)
}
