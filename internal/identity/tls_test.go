package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// The function `ask` sends a request to a server. It returns the operator's name that the server saw,
// or the server's error.
func ask(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	var name string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if name, _, err = identity.OperatorName(r.TLS); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	}))
	s.TLS = server
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	transport := &http.Transport{TLSClientConfig: client}
	defer transport.CloseIdleConnections()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Client{Transport: transport}).Get("https://localhost:" + u.Port())
	if err != nil {
		return "", tutti.Wrap(tutti.CodeUnavailable, err, "request")
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return "", tutti.Errorf(tutti.CodeUnauthenticated, "%s", r.Status)
	}
	return name, nil
}

func mustClient(t *testing.T, a *identity.Authority) *tls.Config {
	t.Helper()
	config, err := identity.ClientTLS(a.CA())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func mustOperator(t *testing.T, a *identity.Authority, name string) identity.OperatorBundle {
	t.Helper()
	bundle, err := a.IssueOperator(name)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// serverCert returns the certificate that a server shows.
func serverCert(t *testing.T, a *identity.Authority) tls.Certificate {
	t.Helper()
	cert, err := a.Bus().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return *cert
}

func TestHTTPS(t *testing.T) {
	a, _ := newAuthority(t)
	other, _ := newAuthority(t)
	with := func(cert tls.Certificate) *tls.Config {
		config := mustClient(t, a)
		config.Certificates = []tls.Certificate{cert}
		return config
	}
	forced := with(mustOperator(t, other, "eve").TLS().Certificates[0])
	cert := forced.Certificates[0]
	// A client normally sends only a certificate that one of the server's CAs could have signed.
	forced.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	old := mustOperator(t, a, "anna").TLS()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, c := range []struct {
		reason string
		client *tls.Config
		want   string
		code   tutti.Code
	}{
		{"an operator", mustOperator(t, a, "anna").TLS(), "anna", ""},
		{"nobody", mustClient(t, a), "", tutti.CodeUnauthenticated},
		{"the server's certificate", with(serverCert(t, a)), "", tutti.CodeUnavailable},
		{"an operator of another fleet", forced, "", tutti.CodeUnavailable},
		{"an operator who trusts another CA", mustOperator(t, other, "anna").TLS(), "", tutti.CodeUnavailable},
		{"TLS 1.2", old, "", tutti.CodeUnavailable},
		{"somebody who knows the pin", identity.PinnedTLS(a.Pin()), "", tutti.CodeUnauthenticated},
		{"somebody who knows another pin", identity.PinnedTLS(other.Pin()), "", tutti.CodeUnavailable},
	} {
		name, err := ask(t, a.HTTPS(), c.client)
		wantCode(t, c.reason, err, c.code)
		if name != c.want {
			t.Errorf("%s: known as %q, want %q", c.reason, name, c.want)
		}
	}
}

func TestPinnedTLSRefusesWhoShowsTheRightCA(t *testing.T) {
	a, _ := newAuthority(t)
	other, _ := newAuthority(t)
	block, _ := pem.Decode(a.CA())
	own := serverCert(t, other)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason string
		cert   tls.Certificate
	}{
		{"another fleet's server with our CA appended", tls.Certificate{Certificate: [][]byte{own.Certificate[0], block.Bytes}, PrivateKey: own.PrivateKey}},
		{"a self-signed certificate with our CA appended", tls.Certificate{Certificate: [][]byte{der, block.Bytes}, PrivateKey: key}},
		{"an operator's certificate as a server's", mustOperator(t, a, "eve").TLS().Certificates[0]},
		{"our own server without its CA", tls.Certificate{Certificate: serverCert(t, a).Certificate[:1], PrivateKey: serverCert(t, a).PrivateKey}},
	} {
		server := &tls.Config{Certificates: []tls.Certificate{c.cert}}
		_, err := ask(t, server, identity.PinnedTLS(a.Pin()))
		wantCode(t, c.reason, err, tutti.CodeUnavailable)
	}
}

func TestServerCertificate(t *testing.T) {
	a, dir := newAuthority(t, "tutti.example.net", "10.0.0.1")
	check := func(a *identity.Authority, reason string, names ...string) {
		t.Helper()
		leaf := serverCert(t, a).Leaf
		for _, name := range append(names, "localhost", "127.0.0.1", "::1") {
			if err := leaf.VerifyHostname(name); err != nil {
				t.Errorf("%s: %v", reason, err)
			}
			if err := a.Names(name); err != nil {
				t.Errorf("%s: for requests: %v", reason, err)
			}
		}
		for _, name := range []string{"evil.example", "", "10.0.0.2", "x." + names[0]} {
			if a.Names(name) == nil {
				t.Errorf("%s: it names %q", reason, name)
			}
		}
	}
	check(a, "made by Init", "tutti.example.net", "10.0.0.1")
	config := a.Bus()
	if err := a.IssueServer([]string{"new.example.net"}); err != nil {
		t.Fatal(err)
	}
	check(a, "renewed", "new.example.net")
	loaded, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	check(loaded, "loaded", "new.example.net")
	running, err := config.GetCertificate(nil)
	if err != nil || running.Leaf.VerifyHostname("new.example.net") != nil {
		t.Error("a running listener shows the old certificate")
	}
	if leaf := serverCert(t, a).Leaf; leaf.VerifyHostname("tutti.example.net") == nil {
		t.Error("the old name is still there")
	}
}

func TestOperatorBundle(t *testing.T) {
	a, _ := newAuthority(t)
	for _, name := range []string{"", "Anna", "a b", "-a", "a/b", "anna\n"} {
		_, err := a.IssueOperator(name)
		wantCode(t, name, err, tutti.CodeInvalid)
	}
	dir := filepath.Join(t.TempDir(), "anna")
	bundle := mustOperator(t, a, "anna")
	if err := bundle.Write(dir); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "written twice", bundle.Write(dir), tutti.CodeConflict)
	loaded, err := identity.LoadOperator(dir)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := ask(t, a.HTTPS(), loaded.TLS()); name != "anna" || err != nil {
		t.Errorf("the loaded bundle is known as %q, %v", name, err)
	}
	signature := identity.SignManifest(loaded.CodeKey, "production", []byte("m"))
	if err := identity.VerifyManifest(a.CodePublicKey(), "production", []byte("m"), signature); err != nil {
		t.Error(err)
	}
	if err := a.ForgetCodeKey(); err != nil {
		t.Fatal(err)
	}
	if err := a.ForgetCodeKey(); err != nil {
		t.Errorf("forgotten twice: %v", err)
	}
	second := mustOperator(t, a, "bert")
	if second.CodeKey != nil {
		t.Error("the server still has the code-signing key")
	}
	dir = filepath.Join(t.TempDir(), "bert")
	if err := second.Write(dir); err != nil {
		t.Fatal(err)
	}
	if loaded, err := identity.LoadOperator(dir); err != nil || loaded.CodeKey != nil {
		t.Errorf("a bundle without the code-signing key: %v", err)
	}
}

func TestCertificatesAllowClockSkew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	synctest.Test(t, func(t *testing.T) {
		a, err := identity.Init(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf := serverCert(t, a).Leaf
		now := time.Now()
		if leaf.NotBefore.After(now.Add(-23 * time.Hour)) {
			t.Errorf("valid from %s: a node whose clock is an hour behind %s cannot join", leaf.NotBefore, now)
		}
		if leaf.NotAfter.Before(now.Add(365 * 24 * time.Hour)) {
			t.Errorf("valid until %s only", leaf.NotAfter)
		}
	})
}

// In this test the server's clock is three years ahead when the certificate is renewed. Clients can
// still connect when the clock is right again.
func TestACertificateOfAClockThatWasAhead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	const year = 365 * 24 * time.Hour
	made := func(ahead time.Duration) (leaf *x509.Certificate) {
		synctest.Test(t, func(t *testing.T) { // the clock of synctest begins in 2000
			time.Sleep(27*year + ahead)
			a, err := identity.Init(dir, nil)
			if ahead > 0 {
				a, err = identity.Load(dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			leaf = serverCert(t, a).Leaf
		})
		return leaf
	}
	first, renewed := made(0), made(3*year)
	if now := first.NotAfter.Add(-2 * year); renewed.NotBefore.After(now) || !renewed.NotAfter.After(first.NotAfter) {
		t.Errorf("renewed: good from %s to %s, and it is %s", renewed.NotBefore, renewed.NotAfter, now)
	}
	synctest.Test(t, func(t *testing.T) { // in 2000 the stored certificate is not valid yet
		a, err := identity.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if healed := serverCert(t, a).Leaf; healed.NotBefore.After(time.Now()) {
			t.Errorf("a certificate that is good from %s stays, and it is %s", healed.NotBefore, time.Now())
		}
	})
}

func TestTheServersCertificateIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "identity")
		a, err := identity.Init(dir, []string{"tutti.example.net", "192.0.2.7"})
		if err != nil {
			t.Fatal(err)
		}
		first := serverCert(t, a).Leaf
		time.Sleep(365 * 24 * time.Hour)
		if got := serverCert(t, a).Leaf; !got.Equal(first) {
			t.Errorf("renewed after a year, a year before its end")
		}
		time.Sleep(364 * 24 * time.Hour)
		renewed := serverCert(t, a).Leaf
		if time.Until(renewed.NotAfter) < 365*24*time.Hour {
			t.Fatalf("a day before its end the server still shows a certificate until %s", renewed.NotAfter)
		}
		if diff := cmp.Diff(first.DNSNames, renewed.DNSNames); diff != "" {
			t.Errorf("names -want +got\n%s", diff)
		}
		for _, host := range []string{"tutti.example.net", "192.0.2.7", "localhost", "127.0.0.1"} {
			if err := renewed.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		again, err := identity.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := serverCert(t, again).Leaf; !got.Equal(renewed) {
			t.Error("the renewed certificate is not the one that the next start shows")
		}
	})
}
