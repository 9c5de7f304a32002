package uidoor

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// policy is the page's Content Security Policy. The page loads nothing from another origin, runs only its own script, and
// cannot be in a frame. The browser refuses a text as HTML or as a script, because only the policy `tutti` of the page
// makes trusted types.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; worker-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types tutti"

// The function `protect` adds the headers of every answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// checkHost refuses a request for another host. If the name of a foreign page leads to this machine (DNS rebinding), the
// browser treats that page and this door as one origin, but the request names the foreign host.
func checkHost(r *http.Request, port string) error {
	host, at, err := net.SplitHostPort(r.Host)
	if err == nil && at == port && slices.Contains([]string{"127.0.0.1", "localhost", "::1"}, host) {
		return nil
	}
	return tutti.Errorf(tutti.CodeRefused, "the request is for the host %.100q, but this page is only at 127.0.0.1:%[2]s, localhost:%[2]s and [::1]:%[2]s", r.Host, port)
}

// checkOrigin refuses requests that another web page caused. Pages on other ports of this machine are other pages, too.
// A browser may only open the page itself from elsewhere, because a link or the file of `tutti ui` does that.
func checkOrigin(r *http.Request) error {
	for _, origin := range r.Header.Values("Origin") {
		if origin != "http://"+r.Host {
			return tutti.Errorf(tutti.CodeRefused, "another web page, %.100q, sent this request", origin)
		}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return tutti.Errorf(tutti.CodeRefused, "another web page sent this request: %v", err)
	}
	if slices.Contains([]string{"frame", "iframe", "embed", "object", "fencedframe"}, r.Header.Get("Sec-Fetch-Dest")) {
		return tutti.Errorf(tutti.CodeRefused, "the page cannot be shown inside another page")
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Method == http.MethodGet {
		return nil
	}
	return tutti.Errorf(tutti.CodeRefused, "another web page sent this request")
}

// bearerOf returns the secret in a request, or an empty text.
func bearerOf(r *http.Request) string {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return ""
	}
	secret, ok := strings.CutPrefix(given[0], "Bearer ")
	if !ok {
		return ""
	}
	return secret
}
