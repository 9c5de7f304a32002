package httpapi

import (
	"mime"
	"net/http"
	"strings"

	"github.com/tutti-project/tutti"
)

const (
	typeJSON = "application/json"
	typeBlob = "application/octet-stream"
)

// contentType is the content type of a call's body.
func contentType(name string) string {
	if name == callPutBlob {
		return typeBlob
	}
	return typeJSON
}

// ownPages refuses requests that a foreign web page lets a browser send with the
// certificate of the browser's user. A browser names the page in Origin. It sends a content type other than those of
// forms only after a preflight request, and this server does not answer that. A request may have no
// content type, because the command line of release 0.2.0 sends none. A browser that sends none
// sends Origin.
func (o Options) ownPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		err := checkOrigin(r)
		if err != nil {
			o.Denied(r, "call "+r.URL.Path+" from a web page", err)
		} else {
			err = checkType(r)
		}
		if err != nil {
			write(w, nil, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkOrigin(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		if origin != "https://"+r.Host {
			return tutti.Errorf(tutti.CodeRefused, "the request has the origin %q, and this server is %q: it takes no requests from other web pages; use the tutti command line", origin, "https://"+r.Host)
		}
	}
	return nil
}

func checkType(r *http.Request) error {
	want := contentType(strings.TrimPrefix(r.URL.Path, "/v1/"))
	for _, given := range r.Header.Values("Content-Type") {
		if kind, _, err := mime.ParseMediaType(given); err != nil || kind != want {
			return tutti.Errorf(tutti.CodeInvalid, "%s has the content type %q: send %q", r.URL.Path, given, want)
		}
	}
	return nil
}
