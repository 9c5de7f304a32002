package uidoor

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
)

// Opened is where the page is. The address contains the code, so do not log it.
type Opened struct {
	URL  string
	File string // a file that leads a browser to the address; only its owner can read it
}

// errUnused ends a door that nobody uses.
var errUnused = errors.New("unused")

// Serve opens a door on a free port of the loopback address, and keeps it open until ctx ends or nobody uses the door for
// an hour. The path is a path of the page, for example `nodes/web-01`. Serve calls `opened` once, when the page can be
// opened.
func Serve(ctx context.Context, o Options, path string, opened func(Opened)) error {
	link, err := Link(path)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "an address for the page")
	}
	defer l.Close()
	if _, o.Port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		return err
	}
	d := New(o)
	at := Opened{URL: "http://" + l.Addr().String() + link + "#code=" + d.Code()}
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "tutti-ui-") // an empty variable means the directory for temporary files
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "the file that opens the page")
	}
	d.entered = func() { _ = os.RemoveAll(dir) } // the code in the file is of no use any more
	defer d.entered()
	at.File = filepath.Join(dir, "open.html")
	if err := os.WriteFile(at.File, []byte(leadTo(at.URL)), 0o600); err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "the file that opens the page")
	}
	server := &http.Server{
		Handler: d, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		if d.Unused(ctx) == nil {
			return errUnused
		}
		return nil
	})
	g.Go(func() error { <-ctx.Done(); return server.Close() })
	opened(at)
	if err := g.Wait(); !errors.Is(err, errUnused) {
		return err
	}
	return nil
}

// Link returns the path of a page in the browser. The argument is a path below /ui/ and may contain a query.
func Link(to string) (string, error) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Fragment != "" || strings.ContainsAny(to, "\\\n\r\t") {
		return "", tutti.Errorf(tutti.CodeInvalid, "%.200q is not a path of the page, such as nodes/web-01", to)
	}
	p := path.Clean("/" + strings.TrimPrefix(strings.TrimPrefix(u.Path, "/"), "ui/"))
	if p == "/ui" {
		p = "/"
	}
	out := url.URL{Path: "/ui" + p, RawQuery: u.RawQuery}
	return out.EscapedPath() + query(out.RawQuery), nil
}

func query(raw string) string {
	if raw == "" {
		return ""
	}
	return "?" + raw
}

// leadTo returns an HTML page that leads to the address. So the address is in no program's arguments.
func leadTo(address string) string {
	return fmt.Sprintf("<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><title>Tutti</title>\n"+
		"<meta http-equiv=\"refresh\" content=\"0; url=%[1]s\"><p><a href=\"%[1]s\">Tutti</a></p>\n", html.EscapeString(address))
}
