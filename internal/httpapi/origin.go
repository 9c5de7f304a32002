package httpapi

import (
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/tutti-project/tutti"
)

const (
	typeJSON = "application/json"
	typeBlob = "application/octet-stream"
)

// Paths that need no certificate.
const (
	pathHealth = "/healthz"
	pathReady  = "/readyz"
)

// contentType returns the content type that a call's body must have.
func contentType(name string) string {
	if name == callPutBlob {
		return typeBlob
	}
	return typeJSON
}

// ownPages protects operators whose browser has their certificate. A foreign web page can make the browser send
// requests with this certificate, and ownPages refuses these requests. A browser names the page in the header Origin.
// Forms can have only three content types. Before a browser sends another content type, it sends a preflight request,
// which this server does not answer. A request may have no content type, because the command line of release 0.2.0
// sends none. A browser that sends no content type still sends Origin.
//
// If the host name of the page leads to this server (DNS rebinding), the browser treats the page and this server as
// the same origin. In that case the request's host is the name of the page, and ownPages refuses the request,
// because the server's certificate does not contain this name. All other clients check that the certificate names
// the host. Health checks may use any host, because a load balancer may use an address that the certificate does
// not name.
func (o Options) ownPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.URL.Path == pathHealth || r.URL.Path == pathReady) {
			next.ServeHTTP(w, r)
			return
		}
		err := o.checkHost(r)
		if err == nil {
			err = checkOrigin(r)
		}
		switch {
		case r.Method != http.MethodPost:
		case err != nil:
			o.Denied(r, "call "+r.URL.Path+" from a web page", err)
		default:
			err = checkType(r)
		}
		if err != nil {
			write(w, nil, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (o Options) checkHost(r *http.Request) error {
	if o.Names == nil {
		return nil
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host // it has no port
	}
	if err := o.Names(host); err != nil {
		return tutti.Errorf(tutti.CodeRefused, "the request is for the host %q, and the certificate of this server does not name it: a web page may have sent the browser to this server; "+
			"use the tutti command line, or a name of the server", host)
	}
	return nil
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
