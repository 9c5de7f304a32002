package outward_test

import (
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/outward"
)

// TestKindsOverTLS sends a report to each other kind of destination, with a CA and a token.
func TestKindsOverTLS(t *testing.T) {
	for name, kind := range map[string]struct{ kind, format, path, typ, body, answer string }{
		"foreman": {outward.Foreman, "", "/api/config_reports", "application/json", `{"config_report":{"host":"web-01"`, `{"id":1}`},
		"yaml":    {outward.HTTP, "yaml", "/in", "application/x-yaml", "--- !ruby/object:Puppet::Transaction::Report\n\"host\": \"web-01\"", ""},
		"json":    {outward.HTTP, "json", "/in", "application/json", `{"host":"web-01"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 1)
			srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raw, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(http.StatusCreated)
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, kind.answer)
				_ = z.Close()
				got <- fmt.Sprintf("%s %s %s %s", r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), raw)
			}))
			t.Cleanup(srv.Close)
			dir := t.TempDir()
			ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
			for path, text := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), token: []byte("s3cret\n")} {
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			u, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			if kind.kind == outward.HTTP {
				u = u.JoinPath("in")
			}
			r := newRig(t, newFake(t))
			r.to = outward.Destination{Name: "x", Kind: kind.kind, Format: kind.format, URL: u, Timeout: time.Minute, Files: outward.Files{Token: token}}

			// Without the CA the other side is unknown, and a token that others can read is not used.
			r.start()
			r.source.end(true)
			<-r.pauses
			if s := r.sender.Status(); !strings.Contains(s.Error, "certificate") {
				t.Errorf("without the CA: %+v", s)
			}
			r.end()
			if err := os.Chmod(token, 0o644); err != nil {
				t.Fatal(err)
			}
			r.to.Files.CA = ca
			r.start()
			<-r.pauses
			if s := r.sender.Status(); !strings.Contains(s.Error, "others may read "+token+": chmod go= "+token) {
				t.Errorf("with a token that others can read: %+v", s)
			}
			if len(got) != 0 {
				t.Errorf("it was sent: %s", <-got)
			}
			// The sender reads the files again when it tries again.
			if err := os.Chmod(token, 0o600); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; {
				select {
				case <-r.pauses:
				case text := <-got:
					done = true
					if !strings.HasPrefix(text, kind.path+" "+kind.typ) || !strings.Contains(text, " Bearer s3cret "+kind.body) {
						t.Errorf("it got %s", text)
					}
				}
			}
			r.until(func(s outward.Status) bool { return s.Sent == 1 })
			if text, err := outward.Check(t.Context(), r.to); err != nil || !strings.HasPrefix(text, "connected (HEAD: 201") {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// TestAClientCertificate sends a report to a PuppetDB that wants a certificate of its CA.
func TestAClientCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"uuid":"x"}`)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	srv.TLS.ClientCAs.AddCert(cert)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	dir := t.TempDir()
	path := func(name, kind string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	files := outward.Files{CA: path("ca.pem", "CERTIFICATE", srv.Certificate().Raw)}
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, newFake(t))
	r.to = outward.Destination{Name: "x", Kind: outward.PuppetDB, URL: u, Timeout: time.Minute, Files: files}
	r.start()
	r.source.end(true)
	<-r.pauses
	if s := r.sender.Status(); s.Sent != 0 || s.Error == "" {
		t.Errorf("without a certificate: %+v", s)
	}
	r.end()
	r.to.Files.Certificate, r.to.Files.Key = path("c.pem", "CERTIFICATE", der), path("k.pem", "PRIVATE KEY", raw)
	r.start()
	r.until(func(s outward.Status) bool { return s.Sent == 1 })
}

// TestOddAnswers sends reports to destinations whose answers are large, are cut off, or repeat the request.
func TestOddAnswers(t *testing.T) {
	long := `{"id":1,"logs":["` + strings.Repeat("x", 100_000) + `"]}`
	for name, c := range map[string]struct {
		kind   string
		answer func(w http.ResponseWriter, r *http.Request)
		sent   int
		why    string
	}{
		"Foreman repeats a large report": {outward.Foreman, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) }, 1, ""},
		"an endpoint ends too early": {outward.HTTP, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "ok")
		}, 1, ""},
		"an answer repeats the token": {outward.HTTP, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "bad "+r.Header.Get("Authorization")+"\nand more")
		}, 0, `401 Unauthorized: bad Bearer [token]\nand more`},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(c.answer))
			t.Cleanup(srv.Close)
			u, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, newFake(t))
			r.to = outward.Destination{Name: "x", Kind: c.kind, Format: "json", URL: u, Timeout: time.Minute, Files: outward.Files{Token: token}}
			r.start()
			r.source.end(true)
			got := r.until(func(s outward.Status) bool { return s.Sent > 0 || s.Error != "" })
			if got.Sent != c.sent || got.Error != c.why {
				t.Errorf("%+v", got)
			}
		})
	}
}
