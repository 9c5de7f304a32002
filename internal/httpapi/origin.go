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

// contentType returns the content type that a call's body must have.
func contentType(name string) string {
	if name == callPutBlob {
		return typeBlob
	}
	return typeJSON
}

// ownPages refuses requests from foreign web pages. A browser would send such a request with the certificate of its
// user. A browser names the web page in the header Origin. For content types that forms do not have, a browser first
// sends a preflight request, and this server does not answer it. A request without a content type is accepted,
// because the command line of release 0.2.0 sends none. A browser that sends no content type still sends Origin.
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
			return tutti.Errorf(tutti.CodeRefused, "the request has the origin %q, but this server is %q: the server refuses requests from other web pages; use the tutti command line", origin, "https://"+r.Host)
		}
	}
	return nil
}

func checkType(r *http.Request) error {
	want := contentType(strings.TrimPrefix(r.URL.Path, "/v1/"))
	for _, given := range r.Header.Values("Content-Type") {
		if kind, _, err := mime.ParseMediaType(given); err != nil || kind != want {
			return tutti.Errorf(tutti.CodeInvalid, "%s has the content type %q, but it must be %q", r.URL.Path, given, want)
		}
	}
	return nil
}
