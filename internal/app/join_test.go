package app

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
)

// puppetSite is the Puppet CA of a site, in the form of Puppet's files.
type puppetSite struct {
	cert *x509.Certificate
	key  crypto.Signer
	dir  string
}

func newPuppetSite(t *testing.T) *puppetSite {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &puppetSite{key: key, dir: t.TempDir(), cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "Puppet CA: puppet.example.net"}, SerialNumber: big.NewInt(1), BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	s.cert = s.sign(t, s.cert, key)
	return s
}

func (s *puppetSite) sign(t *testing.T, c *x509.Certificate, key crypto.Signer) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, s.cert, key.Public(), s.key)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *puppetSite) set(t *testing.T, revoked ...int64) api.SetJoinCA {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, s.cert, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: pemOf("CERTIFICATE", s.cert.Raw), CRL: pemOf("X509 CRL", der)}}
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// The method `node` writes a certificate with `pp_role: web` and its key, and returns the two files.
func (s *puppetSite) node(t *testing.T, name string, serial int64) (certificate, key string) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	role, err := asn1.MarshalWithParams("web", "utf8")
	if err != nil {
		t.Fatal(err)
	}
	cert := s.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(serial), NotBefore: s.cert.NotBefore, NotAfter: s.cert.NotAfter, BasicConstraintsValid: true,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, 1, 13}, Value: role}},
	}, private)
	certificate, key = filepath.Join(s.dir, name+".pem"), filepath.Join(s.dir, name+".key")
	if err := errors.Join(
		os.WriteFile(certificate, []byte(pemOf("CERTIFICATE", cert.Raw)), 0o600),
		os.WriteFile(key, []byte(pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private))), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// TestAMachineJoinsWithItsCertificate lets a machine join with its Puppet certificate, with real TLS and real files.
func TestAMachineJoinsWithItsCertificate(t *testing.T) {
	f, site := startRotated(t), newPuppetSite(t)
	var view api.JoinCAView
	show := func(set *api.SetJoinCA) {
		t.Helper()
		var err error
		f.served(t, func(c *httpapi.Client) error {
			if set != nil {
				view, err = c.SetJoinCA(t.Context(), *set)
			} else {
				view, err = c.ShowJoinCA(t.Context())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	show(nil)
	by := machine.PuppetIdentity{Server: f.https, Pin: view.Pin}
	by.Certificate, by.PrivateKey = site.node(t, "web-01.example.net", 16)
	dir := filepath.Join(t.TempDir(), "agent")
	join := func(by machine.PuppetIdentity) (tutti.NodeName, string, error) {
		return machine.JoinByCertificate(t.Context(), machine.JoinOptions{Dir: dir}, by)
	}
	refused := func(what string, by machine.PuppetIdentity, code tutti.Code, says string) {
		t.Helper()
		_, pending, err := join(by)
		if tutti.CodeOf(err) != code || !strings.Contains(err.Error(), says) || pending != "" {
			t.Errorf("%s: %v (pending %q), want code %s and %q", what, err, pending, code, says)
		}
	}
	refused("the server knows no CA", by, tutti.CodeRefused, "trust-ca")

	set := site.set(t, 17)
	show(&set)
	if strings.Join(view.Subjects, "|") != "Puppet CA: puppet.example.net" || view.CRLEnds.IsZero() || view.Server != f.https {
		t.Errorf("the CA is %+v", view)
	}
	wrong := by
	wrong.Pin = tutti.DigestOf([]byte("another fleet"))
	refused("another server", wrong, tutti.CodeRefused, "did not sign the server's certificate")
	wrong = by
	wrong.Certificate, wrong.PrivateKey = site.node(t, "web-02.example.net", 17)
	refused("a revoked certificate", wrong, tutti.CodeRefused, "revoked")
	wrong.Certificate = by.Certificate
	refused("the key of another certificate", wrong, tutti.CodeInvalid, "is not the key of the certificate")
	wrong.Certificate = by.PrivateKey
	refused("a private key in place of the certificate", wrong, tutti.CodeInvalid, by.PrivateKey)
	wrong.Certificate, wrong.PrivateKey = newPuppetSite(t).node(t, "web-01.example.net", 16)
	refused("a certificate of another CA", wrong, tutti.CodeRefused, "CA")

	name, pending, err := join(by)
	if name != "" || !strings.Contains(pending, "no rule") || err != nil {
		t.Fatalf("joined as %q, pending %q, %v", name, pending, err)
	}
	waits, err := f.client(t).ListPending(t.Context())
	if err != nil || len(waits) != 1 || waits[0].Certificate.Extensions["pp_role"] != "web" || waits[0].Certificate.Serial != "0x0010" {
		t.Fatalf("pending: %+v, %v", waits, err)
	}
	if err := f.client(t).ApproveNode(t.Context(), api.ApproveNode{Node: "web-01.example.net"}); err != nil {
		t.Fatal(err)
	}
	if name, pending, err = join(by); name != "web-01.example.net" || pending != "" || err != nil {
		t.Fatalf("after the approval: joined as %q, pending %q, %v", name, pending, err)
	}
	m, err := machine.LoadMembership(machine.IdentityDir(dir))
	if err != nil || m.Node != "web-01.example.net" {
		t.Errorf("membership %+v, %v", m, err)
	}
	refused("a machine that is a node", by, tutti.CodeConflict, "already")
}

// TestARequestIsForOneConnection sends a request that was signed for another connection. Somebody who has read the request
// of a machine, or to whom the machine has sent it, would send such a request.
func TestARequestIsForOneConnection(t *testing.T) {
	f, site := startRotated(t), newPuppetSite(t)
	set := site.set(t)
	var view api.JoinCAView
	var err error
	f.served(t, func(c *httpapi.Client) error { view, err = c.SetJoinCA(t.Context(), set); return err })
	if err != nil {
		t.Fatal(err)
	}
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := site.node(t, "web-01", 16)
	files := [2][]byte{}
	for i, path := range []string{certificate, key} {
		if files[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	req := identity.JoinRequest{Certificate: string(files[0]), Key: node.Key, BoxKey: node.BoxKey()}
	if err := req.Sign(make([]byte, 32), node.Seed, files[1]); err != nil {
		t.Fatal(err)
	}
	client := httpapi.NewClient("https://"+f.https, &http.Client{Transport: httpapi.Transport(identity.PinnedTLS(view.Pin), &net.Dialer{})})
	_, err = client.EnrolByCertificate(t.Context(), api.JoinRequest{
		Certificate: req.Certificate, Key: req.Key, BoxKey: req.BoxKey, Signature: req.Signature, Proof: req.Proof, Binding: make([]byte, 32),
	})
	if tutti.CodeOf(err) != tutti.CodeUnauthenticated {
		t.Errorf("a request for another connection: %v", err)
	}
	if waits, err := f.client(t).ListPending(t.Context()); err != nil || len(waits) != 0 {
		t.Errorf("pending: %+v, %v", waits, err)
	}
}
