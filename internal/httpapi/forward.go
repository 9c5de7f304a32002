package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/tutti-project/tutti"
)

// The type `forwards` contains the method of a client that passes a call on without reading its content.
type forwards struct{ c *Client }

// Forward sends a call with this body, and writes the server's answer to w. If `endless` is true, the answer is a
// stream, and each part of the stream goes to w immediately. Otherwise the server must answer before the deadline of
// all other calls. The caller decides which calls it passes on.
func (f forwards) Forward(w http.ResponseWriter, r *http.Request, call string, body []byte, endless bool) {
	ctx := r.Context()
	if !endless {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, callDeadline,
			tutti.Errorf(tutti.CodeDeadline, "the server at %s did not answer %s within %s", f.c.base, call, callDeadline))
		defer cancel()
	}
	resp, err := f.c.post(ctx, call, body)
	if err != nil {
		write(w, nil, err)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	out := io.Writer(w)
	if endless {
		out = flushed{w, http.NewResponseController(w)}
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		// The answer broke off. The reader of a stream needs its last line to know that the stream is complete. Other
		// answers have no such line, so the connection must break off, too.
		panic(http.ErrAbortHandler)
	}
}

// The type `flushed` sends everything immediately.
type flushed struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f flushed) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}
