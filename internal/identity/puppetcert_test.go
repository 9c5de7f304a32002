package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

var puppetNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// day returns the time n days after puppetNow.
func day(n int) time.Time { return puppetNow.AddDate(0, 0, n) }

// puppetSite is a Puppet CA, which a test has made.
type puppetSite struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue signs a certificate with the serial number 16 and the changes of edit.
func issue(t testing.TB, parent *puppetSite, name string, key crypto.Signer, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(16), NotBefore: day(-10), NotAfter: day(100), BasicConstraintsValid: true,
	}
	if edit != nil {
		edit(c)
	}
	signer := key
	above := c
	if parent != nil {
		above, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, above, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newPuppetSite(t testing.TB, parent *puppetSite, name string, key crypto.Signer, ends time.Time) *puppetSite {
	t.Helper()
	return &puppetSite{key: key, cert: issue(t, parent, name, key, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.NotAfter, c.SerialNumber = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign, ends, big.NewInt(2)
	})}
}

func (s *puppetSite) crl(t testing.TB, ends time.Time, revoked ...int64) string {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: day(-9), NextUpdate: ends}
	for _, n := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: day(-3)})
	}
	return s.crlOf(t, list)
}

func (s *puppetSite) crlOf(t testing.TB, list *x509.RevocationList) string {
	t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader, list, s.cert, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return puppetPEM("X509 CRL", der)
}

func puppetPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func (s *puppetSite) pem() string { return puppetPEM("CERTIFICATE", s.cert.Raw) }

// wantError checks the code and a part of the text.
func wantError(t *testing.T, reason string, err error, code tutti.Code, text string) {
	t.Helper()
	wantCode(t, reason, err, code)
	if err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got error %q, want %q in it", reason, err, text)
	}
}

func TestReadPuppetCA(t *testing.T) {
	root := newPuppetSite(t, nil, "Puppet Root CA", newECKey(t), day(50))
	middle := newPuppetSite(t, root, "Puppet CA: puppet.example.net", newECKey(t), day(40))
	other := newPuppetSite(t, nil, "Puppet Root CA", newECKey(t), day(50))
	leaf := puppetPEM("CERTIFICATE", issue(t, root, "web", newECKey(t), nil).Raw)
	key, err := x509.MarshalPKCS8PrivateKey(root.key)
	must(t, err)
	delta := root.crlOf(t, &x509.RevocationList{Number: big.NewInt(2), ThisUpdate: day(-1), NextUpdate: day(1), ExtraExtensions: []pkix.Extension{
		{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}},
	}})
	damaged := strings.Replace(root.pem(), "M", "*", 1)
	both := middle.pem() + root.pem()
	for _, c := range []struct{ reason, ca, crl, text string }{
		{"a root", root.pem(), "", ""},
		{"an intermediate CA with CRLs", both, root.crl(t, day(20)) + middle.crl(t, day(10)), ""},
		{"text before the blocks", "Certificate:\n  Data\n" + root.pem() + "\nof the root\n" + root.pem(), " \n", ""},
		{"nothing", "", "", "no certificate"},
		{"no PEM", "hello", "", "not in PEM form"},
		{"a node's certificate", root.pem() + leaf, "", "certificate 2, of \"web\", is not the certificate of a CA"},
		{"no root", middle.pem(), "", "no self-signed root"},
		{"a private key", root.pem() + puppetPEM("PRIVATE KEY", key), "", "the file contains a private key"},
		{"an old private key", root.pem() + puppetPEM("RSA PRIVATE KEY", key), "", "the file contains a private key"},
		{"a CRL among the certificates", root.pem() + root.crl(t, day(1)), "", "a block \"X509 CRL\""},
		{"other content at the end", root.pem() + "x", "", "other content after PEM block 1"},
		{"a damaged block at the end", root.pem() + damaged, "", "other content after PEM block 1"},
		{"a damaged block before a good one", damaged + root.pem(), "", "PEM block 1 is damaged"},
		{"no certificate in the block", puppetPEM("CERTIFICATE", []byte("x")), "", "certificate 1"},
		{"a CRL of another CA of the same name", root.pem(), root.crl(t, day(1)) + other.crl(t, day(1)), "no CA of the file signed CRL 2"},
		{"a certificate among the CRLs", root.pem(), root.pem(), "a block \"CERTIFICATE\""},
		{"no CRL in the block", root.pem(), puppetPEM("X509 CRL", []byte("x")), "CRL 1"},
		{"a CRL of changes", root.pem(), delta, "critical extension 2.5.29.27"},
		{"the largest size", strings.Repeat("\n", 256<<10-len(root.pem())) + root.pem(), "", ""},
		{"too large", strings.Repeat("\n", 256<<10-len(root.pem())) + root.pem(), " ", "at most 262144"},
	} {
		want := tutti.CodeInvalid
		if c.text == "" {
			want = ""
		}
		ca, err := identity.ReadPuppetCA([]byte(c.ca), []byte(c.crl))
		wantError(t, c.reason, err, want, c.text)
		if (ca == nil) != (err != nil) {
			t.Errorf("%s: got both a CA and an error, or neither", c.reason)
		}
	}
	ca, err := identity.ReadPuppetCA([]byte(both), []byte(root.crl(t, day(20))+middle.crl(t, day(10))))
	must(t, err)
	got := fmt.Sprint(ca.Subjects(), ca.Ends().Equal(day(40)), ca.CRLEnds().Equal(day(10)))
	if diff := cmp.Diff("[Puppet CA: puppet.example.net Puppet Root CA] true true", got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	ca, err = identity.ReadPuppetCA([]byte(both), nil)
	must(t, err)
	if !ca.CRLEnds().IsZero() {
		t.Errorf("without a CRL, CRLEnds is %s", ca.CRLEnds())
	}
}

func TestPuppetVerify(t *testing.T) {
	root := newPuppetSite(t, nil, "Root", newECKey(t), day(1000))
	middle := newPuppetSite(t, root, "Middle", newECKey(t), day(1000))
	old := newPuppetSite(t, nil, "Old", newECKey(t), day(-1))
	other := newPuppetSite(t, nil, "Root", newECKey(t), day(1000))
	key := newECKey(t)
	of := func(s *puppetSite, name string, edit func(*x509.Certificate)) string {
		return puppetPEM("CERTIFICATE", issue(t, s, name, key, edit).Raw)
	}
	critical := func(id ...int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: id, Critical: true, Value: []byte("\x0c\x03web")}}
		}
	}
	usage := func(u x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{u} }
	}
	good := of(middle, "web.example.net", nil)
	all := root.crl(t, day(9)) + middle.crl(t, day(9))
	const refused = tutti.CodeRefused
	for _, c := range []struct {
		reason, crl, cert string
		code              tutti.Code
		text              string
	}{
		{"no CRL", "", good, "", ""},
		{"all CRLs", all, good, "", ""},
		{"no CRL of the root", middle.crl(t, day(9)), good, "", ""},
		{"an ended CRL and its successor", all + middle.crl(t, day(-1)), good, "", ""},
		{"a revoked certificate of the same serial number, of another CA", root.crl(t, day(9), 16) + middle.crl(t, day(9)), good, "", ""},
		{"for clients", "", of(root, "web", usage(x509.ExtKeyUsageClientAuth)), "", ""},
		{"for servers", "", of(root, "web", usage(x509.ExtKeyUsageServerAuth)), "", ""},
		{"a critical extension of Puppet", "", of(root, "web", critical(1, 3, 6, 1, 4, 1, 34380, 1, 1, 13)), "", ""},
		{"a critical comment", "", of(root, "web", critical(2, 16, 840, 1, 113730, 1, 13)), "", ""},
		{"another critical extension", "", of(root, "web", critical(1, 2, 3)), refused, "critical extension 1.2.3"},
		{"another CA of the same name", "", of(other, "web", nil), refused, "another CA signed it"},
		{"self-signed", "", of(nil, "web", nil), refused, "another CA signed it"},
		{"expired", all, of(middle, "web", func(c *x509.Certificate) { c.NotAfter = day(-1) }), refused, "expired at 2026-02-28T12:00:00Z"},
		{"not yet valid", all, of(middle, "web", func(c *x509.Certificate) { c.NotBefore = day(1) }), refused, "not valid before 2026-03-02T12:00:00Z"},
		{"the CA has ended", "", of(old, "web", nil), refused, "its CA \"Old\" ended at 2026-02-28T12:00:00Z"},
		{"revoked", root.crl(t, day(9)) + middle.crl(t, day(9), 5, 16), good, refused, "web.example.net: revoked at 2026-02-26T12:00:00Z, serial number 0x0010"},
		{"revoked by an ended CRL", middle.crl(t, day(-1), 16), good, refused, "revoked at"},
		{"revoked by the older of two CRLs", middle.crl(t, day(1), 16) + middle.crl(t, day(9)), good, refused, "revoked at"},
		{"the CA is revoked", root.crl(t, day(9), 2) + middle.crl(t, day(9)), good, refused,
			"its CA \"Middle\": revoked at 2026-02-26T12:00:00Z, serial number 0x0002"},
		{"the CRL has ended", middle.crl(t, day(-1)), good, refused, "the CRL of \"Middle\" ended at 2026-02-28T12:00:00Z"},
		{"the CRL of the root has ended", root.crl(t, day(-1)) + middle.crl(t, day(9)), good, refused, "the CRL of \"Root\" ended at"},
		{"only a CRL of another CA", root.crl(t, day(9)), good, refused, "no CRL of its CA \"Middle\" is known"},
		{"a CA", all, middle.pem(), refused, "is the certificate of a CA"},
		{"a CA with a node's name", all, newPuppetSite(t, root, "web", newECKey(t), day(9)).pem(), refused, "is the certificate of a CA"},
		{"upper case", all, of(middle, "Web", nil), refused, "common name \"Web\" of the Puppet certificate is not a node name"},
		{"a path", all, of(middle, "../web", nil), refused, "is not a node name"},
		{"no name", all, of(middle, "", nil), refused, "0 common names"},
		{"two names", all, of(middle, "web", func(c *x509.Certificate) {
			c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 3}, Value: "db"}, {Type: []int{2, 5, 4, 3}, Value: "web"}}
		}), refused, "2 common names"},
		{"two certificates", all, good + middle.pem(), tutti.CodeInvalid, "2 certificates"},
		{"nothing", all, "", tutti.CodeInvalid, "0 certificates"},
		{"no certificate", all, puppetPEM("CERTIFICATE", []byte("x")), tutti.CodeInvalid, "Puppet certificate: "},
		{"too large", all, strings.Repeat(" ", 12<<10) + good, tutti.CodeInvalid, "at most 12288"},
	} {
		ca, err := identity.ReadPuppetCA([]byte(root.pem()+middle.pem()+old.pem()), []byte(c.crl))
		if err != nil {
			t.Fatal(c.reason, err)
		}
		got, err := ca.Verify([]byte(c.cert), puppetNow)
		wantError(t, c.reason, err, c.code, c.text)
		if c.cert != good || c.code != "" {
			continue
		}
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		must(t, err)
		want := identity.PuppetCert{Name: "web.example.net", Key: tutti.DigestOf(der), Serial: "0x0010", Issuer: tutti.DigestOf(middle.cert.RawSubjectPublicKeyInfo), Ends: day(100), Extensions: map[string]string{}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.reason, diff)
		}
	}
}

// A renewed CA has the same key. A certificate is valid if one of the CA's two certificates is not revoked.
// TestARevokedNodeIsNamed checks that a serial number counts only with the CA that revoked it.
func TestARevokedNodeIsNamed(t *testing.T) {
	root := newPuppetSite(t, nil, "Root", newECKey(t), day(1000))
	middle := newPuppetSite(t, root, "Middle", newECKey(t), day(1000))
	ca, err := identity.ReadPuppetCA([]byte(root.pem()+middle.pem()), []byte(root.crl(t, day(9), 16)+middle.crl(t, day(9), 17)))
	must(t, err)
	for _, c := range []struct {
		site   *puppetSite
		serial string
		want   bool
	}{{root, "0x0010", true}, {root, "0x0011", false}, {middle, "0x0010", false}, {middle, "0x0011", true}} {
		if got := ca.Revokes(tutti.DigestOf(c.site.cert.RawSubjectPublicKeyInfo), c.serial); got != c.want {
			t.Errorf("%s revokes %s: %v, want %v", c.site.cert.Subject, c.serial, got, c.want)
		}
	}
}

func TestPuppetVerifyWithARenewedCA(t *testing.T) {
	root := newPuppetSite(t, nil, "Root", newECKey(t), day(1000))
	middle := newPuppetSite(t, root, "Middle", newECKey(t), day(50))
	renewed := issue(t, root, "Middle", middle.key, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.SerialNumber = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign, big.NewInt(3)
	})
	leaf := puppetPEM("CERTIFICATE", issue(t, middle, "web", newECKey(t), nil).Raw)
	for _, c := range []struct {
		reason  string
		revoked []int64
		code    tutti.Code
	}{{"none revoked", nil, ""}, {"old revoked", []int64{2}, ""}, {"new revoked", []int64{3}, ""}, {"both revoked", []int64{2, 3}, tutti.CodeRefused}} {
		crls := root.crl(t, day(9), c.revoked...) + middle.crl(t, day(9))
		ca, err := identity.ReadPuppetCA([]byte(root.pem()+middle.pem()+puppetPEM("CERTIFICATE", renewed.Raw)), []byte(crls))
		must(t, err)
		_, err = ca.Verify([]byte(leaf), puppetNow)
		wantCode(t, c.reason, err, c.code)
	}
}

func TestPuppetExtensions(t *testing.T) {
	root := newPuppetSite(t, nil, "Root", newECKey(t), day(1000))
	ca, err := identity.ReadPuppetCA([]byte(root.pem()), nil)
	must(t, err)
	key := newECKey(t)
	ext := func(value string, arc ...int) pkix.Extension {
		return pkix.Extension{Id: append(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1}, arc...), Value: []byte(value)}
	}
	text := func(n int) string { return fmt.Sprintf("\x0c\x82%c%c%s", n>>8, n&255, strings.Repeat("x", n)) }
	many := func(n int) (all []pkix.Extension) {
		for i := range n {
			all = append(all, ext("x", 2, i))
		}
		return all
	}
	for _, c := range []struct {
		reason     string
		extensions []pkix.Extension
		want       map[string]string
		text       string
	}{
		{"UTF-8", []pkix.Extension{ext("\x0c\x05gr\xc3\xbcn", 1, 13)}, map[string]string{"pp_role": "grün"}, ""},
		{"a printable string and an IA5 string", []pkix.Extension{ext("\x13\x02ab", 1, 1), ext("\x16\x02cd", 3, 13)},
			map[string]string{"pp_uuid": "ab", "pp_auth_role": "cd"}, ""},
		{"private extensions", []pkix.Extension{ext("\x0c\x01a", 2, 1, 7), ext("\x0c\x01b", 1, 99)},
			map[string]string{"1.3.6.1.4.1.34380.1.2.1.7": "a", "1.3.6.1.4.1.34380.1.1.99": "b"}, ""},
		{"the bytes of old releases", []pkix.Extension{ext("web server", 1, 13), ext("", 1, 9), ext("0!"+strings.Repeat("x", 33), 1, 8)},
			map[string]string{"pp_role": "web server", "pp_service": "", "pp_application": "0!" + strings.Repeat("x", 33)}, ""},
		{"bytes that look like ASN.1", []pkix.Extension{ext("A\x05hello", 1, 13)}, map[string]string{"pp_role": "hello"}, ""},
		{"numbers", []pkix.Extension{ext("\x02\x01\x05", 1, 1), ext("\x0a\x01\xff", 1, 2), ext("\x01\x01\xff", 1, 3), ext("\x02\x02\x00\x05", 1, 5)},
			map[string]string{"pp_uuid": "5", "pp_instance_id": "-1", "pp_image_name": "true", "pp_cost_center": "\x02\x02\x00\x05"}, ""},
		{"a preshared key", []pkix.Extension{ext("\x0c\x06secret", 1, 4)}, map[string]string{}, ""},
		{"other extensions", []pkix.Extension{ext("x", 4, 1), ext("x", 1), ext("x", 10, 1)}, map[string]string{}, ""},
		{"the longest", []pkix.Extension{ext("\x0c\x82\x04\x00"+strings.Repeat("x", 1024), 1, 1)}, map[string]string{"pp_uuid": strings.Repeat("x", 1024)}, ""},
		{"too long", []pkix.Extension{ext("\x0c\x82\x04\x01"+strings.Repeat("x", 1025), 1, 13)}, nil, "extension pp_role: the value is longer than 1024 bytes"},
		{"too long, without ASN.1", []pkix.Extension{ext(strings.Repeat("x", 1025), 1, 13)}, nil, "longer than 1024 bytes"},
		{"much too long", []pkix.Extension{ext(text(4000), 1, 13)}, nil, "longer than 1024 bytes"},
		{"not UTF-8", []pkix.Extension{ext("\x0c\x01\xff", 1, 13)}, nil, "extension pp_role: the value is not UTF-8"},
		{"not UTF-8, without ASN.1", []pkix.Extension{ext("\xff", 1, 13)}, nil, "not UTF-8"},
		{"a list", []pkix.Extension{ext("\x30\x03\x0c\x01a", 1, 13)}, nil, "not a text, but a list"},
		{"nothing", []pkix.Extension{ext("\x05\x00", 1, 13)}, nil, "not a text, but ASN.1 with the tag 5"},
		{"too many", many(65), nil, "65 trusted extensions, at most 64"},
	} {
		cert := issue(t, root, "web", key, func(to *x509.Certificate) { to.ExtraExtensions = c.extensions })
		want := tutti.CodeRefused
		if c.text == "" {
			want = ""
		}
		got, err := ca.Verify([]byte(puppetPEM("CERTIFICATE", cert.Raw)), puppetNow)
		wantError(t, c.reason, err, want, c.text)
		if diff := cmp.Diff(c.want, got.Extensions); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.reason, diff)
		}
	}
	cert := issue(t, root, "web", key, func(to *x509.Certificate) { to.ExtraExtensions = append(many(64), ext("s", 1, 4)) })
	if got, err := ca.Verify([]byte(puppetPEM("CERTIFICATE", cert.Raw)), puppetNow); err != nil || len(got.Extensions) != 64 {
		t.Errorf("64 extensions: got %d, %v", len(got.Extensions), err)
	}
}

// puppetScript makes a CA, a CRL and a node's certificate, each as Puppet's own CA did. It uses Puppet's code for the
// request, and for the extensions that Puppet reads in the certificate.
const puppetScript = `
require 'json'
require 'puppet'
require 'puppet/ssl/certificate'
require 'puppet/ssl/certificate_request'
Puppet.initialize_settings(['--confdir', 'conf', '--vardir', 'var'])
Puppet::SSL::Oids.register_puppet_oids
X = OpenSSL::X509
def cert(subject, issuer, key, serial)
  c = X::Certificate.new
  c.version, c.serial, c.subject, c.issuer, c.public_key = 2, serial, subject, issuer, key
  c.not_before, c.not_after = Time.now - 86400, Time.now + 86400
  c
end
ca_key = OpenSSL::PKey::RSA.new(2048)
name = X::Name.new([['CN', 'Puppet CA: puppet.example.net']])
ca = cert(name, name, ca_key.public_key, 1)
ef = X::ExtensionFactory.new
ef.subject_certificate = ef.issuer_certificate = ca
ca.add_extension(ef.create_extension('nsComment', 'Puppet Ruby/OpenSSL Internal Certificate', false))
ca.add_extension(ef.create_extension('basicConstraints', 'CA:TRUE', true))
ca.add_extension(ef.create_extension('keyUsage', 'cRLSign, keyCertSign', true))
ca.sign(ca_key, OpenSSL::Digest.new('SHA256'))
crl = X::CRL.new
crl.version, crl.issuer, crl.last_update, crl.next_update = 1, name, Time.now - 86400, Time.now + 86400
crl.add_extension(ef.create_extension('authorityKeyIdentifier', 'keyid', false)) rescue nil
crl.add_extension(X::Extension.new('crlNumber', OpenSSL::ASN1::Integer(1)))
crl.sign(ca_key, OpenSSL::Digest.new('SHA256'))
key = OpenSSL::PKey::RSA.new(2048)
csr = Puppet::SSL::CertificateRequest.new('web.example.net')
csr.generate(key, extension_requests: { 'pp_role' => 'web', 'pp_auth_role' => 'admin', '1.3.6.1.4.1.34380.1.2.1.7' => "grün" })
node = cert(csr.content.subject, name, csr.content.public_key, 0x2a)
ef.subject_certificate = node
node.add_extension(ef.create_extension('nsComment', 'Puppet Ruby/OpenSSL Internal Certificate', false))
node.add_extension(ef.create_extension('basicConstraints', 'CA:FALSE', true))
node.add_extension(ef.create_extension('extendedKeyUsage', 'serverAuth, clientAuth', true))
node.add_extension(ef.create_extension('keyUsage', 'digitalSignature, keyEncipherment', true))
csr.request_extensions.each do |e|
  node.add_extension(X::Extension.new(e['oid'], OpenSSL::ASN1::UTF8String.new(e['value']).to_der, false))
end
node.add_extension(X::Extension.new('pp_datacenter', 'as an old release', false))
node.sign(ca_key, OpenSSL::Digest.new('SHA256'))
seen = Puppet::SSL::Certificate.from_instance(node).custom_extensions.map { |e| [e['oid'], e['value'].dup.force_encoding('UTF-8')] }.to_h
puts JSON.generate(ca: ca.to_pem, crl: crl.to_pem, cert: node.to_pem, key: key.to_pem, extensions: seen)
`

// TestPuppetCertOfPuppet compares the extensions with those that Puppet itself reads. Puppet's key signs a request.
func TestPuppetCertOfPuppet(t *testing.T) {
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		t.Skip("ruby is not installed, so the certificates of Puppet are not compared")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "make.rb")
	must(t, os.WriteFile(script, []byte(puppetScript), 0o600))
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), ruby, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "LANG=C.UTF-8")
		return cmd
	}
	if out, err := command("-e", "require 'puppet'").CombinedOutput(); err != nil {
		t.Skipf("ruby has no Puppet, so the certificates of Puppet are not compared: %s", out)
	}
	var made struct {
		CA, CRL, Cert, Key string
		Extensions         map[string]string
	}
	cmd := command("-W0", script)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	must(t, json.Unmarshal(out, &made))
	ca, err := identity.ReadPuppetCA([]byte(made.CA), []byte(made.CRL))
	must(t, err)
	got, err := ca.Verify([]byte(made.Cert), time.Now())
	must(t, err)
	if diff := cmp.Diff(made.Extensions, got.Extensions); diff != "" || got.Name != "web.example.net" || got.Serial != "0x002A" || len(got.Extensions) != 4 {
		t.Errorf("%+v: -Puppet +Tutti\n%s", got, diff)
	}
	r, seed := newJoinRequest(t, made.Cert)
	must(t, r.Sign(aBinding, seed, []byte(made.Key)))
	must(t, r.Verify(aBinding))
}

// FuzzPuppetCert checks that any files and certificates are either accepted or refused with a short error. It also signs
// a certificate with any name and any extension, and checks that an accepted certificate has only usable values.
func FuzzPuppetCert(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32)) // a fixed seed, so each process that runs an input has the same key
	root := newPuppetSite(f, nil, "Root", key, day(1000))
	ca, err := identity.ReadPuppetCA([]byte(root.pem()), []byte(root.crl(f, day(9))))
	if err != nil {
		f.Fatal(err)
	}
	leaf := puppetPEM("CERTIFICATE", issue(f, root, "web", key, nil).Raw)
	for _, value := range []string{"\x0c\x03web", "web", "\x30\x03\x0c\x01a", "\x02\x02\x00\x05", "\xff", "\x0c\x82\x04\x01x", ""} {
		f.Add([]byte(root.pem()), []byte(root.crl(f, day(9), 16)), []byte(leaf), "web.example.net", uint8(1), uint8(13), []byte(value))
	}
	f.Add([]byte(leaf), []byte("x"), []byte(root.pem()), "Web", uint8(1), uint8(4), []byte("\x0c\x01a"))
	f.Fuzz(func(t *testing.T, caPEM, crlPEM, certPEM []byte, name string, arc, last uint8, value []byte) {
		check := func(ca *identity.PuppetCA, certPEM []byte) {
			got, err := ca.Verify(certPEM, puppetNow)
			if err != nil {
				checkPuppetError(t, err)
				return
			}
			if got.Name.Validate() != nil || string(got.Name) != strings.ToLower(string(got.Name)) || got.Key.Validate() != nil || len(got.Extensions) > 64 {
				t.Errorf("accepted %+v", got)
			}
			for name, value := range got.Extensions {
				if !utf8.ValidString(value) || len(value) > 1024 || name == "pp_preshared_key" || strings.HasSuffix(name, "34380.1.1.4") {
					t.Errorf("accepted %q: %q", name, value)
				}
			}
		}
		if any, err := identity.ReadPuppetCA(caPEM, crlPEM); err != nil {
			checkPuppetError(t, err)
		} else if any.Ends(); len(any.Subjects()) == 0 {
			t.Error("accepted a CA without certificates")
		} else {
			check(any, certPEM)
		}
		check(ca, certPEM)
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(16), NotBefore: day(-10), NotAfter: day(100),
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, int(arc), int(last)}, Value: value}},
		}
		if der, err := x509.CreateCertificate(rand.Reader, template, root.cert, key.Public(), key); err == nil {
			check(ca, []byte(puppetPEM("CERTIFICATE", der)))
		}
	})
}

func checkPuppetError(t *testing.T, err error) {
	t.Helper()
	if code := tutti.CodeOf(err); code != tutti.CodeInvalid && code != tutti.CodeRefused || len(err.Error()) > 3000 {
		t.Errorf("code %q of %v", code, err)
	}
}
