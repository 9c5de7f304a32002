package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
)

const (
	maxPuppetCA   = 256 << 10 // bytes of the CA certificates and the CRLs together
	maxPuppetCert = 12 << 10  // bytes of a node's certificate in PEM
)

// PuppetCA is the CA of a site's Puppet, with its CRLs. A PuppetCA never changes, so several goroutines may use it at
// the same time.
type PuppetCA struct {
	cas                  []*x509.Certificate
	roots, intermediates *x509.CertPool
	crls                 map[string][]*x509.RevocationList // by issuerID
	crlEnds              time.Time
}

// ReadPuppetCA reads the certificates and the CRLs of a Puppet CA. The argument caPEM has one or several CA
// certificates in PEM, as in Puppet's file ca_crt.pem or ca.pem. These must include a self-signed root. The argument
// crlPEM has CRLs in PEM, as in Puppet's file ca_crl.pem or crl.pem. One of these CAs must have signed each CRL. If
// crlPEM is empty, no certificate counts as revoked. Text before a PEM block is allowed, because openssl writes such
// text. ReadPuppetCA returns CodeInvalid if the files contain anything else, or if they are larger than 256 KiB together.
func ReadPuppetCA(caPEM, crlPEM []byte) (*PuppetCA, error) {
	if size := len(caPEM) + len(crlPEM); size > maxPuppetCA {
		return nil, tutti.Errorf(tutti.CodeInvalid, "Puppet CA: the certificates and CRLs have %d bytes, at most %d", size, maxPuppetCA)
	}
	ca := &PuppetCA{roots: x509.NewCertPool(), intermediates: x509.NewCertPool(), crls: map[string][]*x509.RevocationList{}}
	if err := ca.readCerts(caPEM); err != nil {
		return nil, err
	}
	if err := ca.readCRLs(crlPEM); err != nil {
		return nil, err
	}
	return ca, nil
}

func (ca *PuppetCA) readCerts(text []byte) error {
	blocks, err := pemBlocks("Puppet CA", text, "CERTIFICATE")
	if err != nil {
		return err
	}
	if len(blocks) == 0 {
		return tutti.Errorf(tutti.CodeInvalid, "Puppet CA: the file contains no certificate in PEM form; use Puppet's file ca_crt.pem")
	}
	hasRoot := false
	for i, der := range blocks {
		cert, err := parsePuppetCert(der)
		if err != nil {
			return tutti.Wrap(tutti.CodeInvalid, err, "Puppet CA: certificate %d", i+1)
		}
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return tutti.Errorf(tutti.CodeInvalid, "Puppet CA: certificate %d, of %.100q, is not the certificate of a CA", i+1, nameOf(cert))
		}
		ca.cas = append(ca.cas, cert)
		if bytes.Equal(cert.RawIssuer, cert.RawSubject) && cert.CheckSignatureFrom(cert) == nil {
			ca.roots.AddCert(cert)
			hasRoot = true
		} else {
			ca.intermediates.AddCert(cert)
		}
	}
	if !hasRoot {
		return tutti.Errorf(tutti.CodeInvalid, "Puppet CA: the file contains no self-signed root, only %.500q; add the certificate of the root CA",
			strings.Join(ca.Subjects(), ", "))
	}
	return nil
}

func (ca *PuppetCA) readCRLs(text []byte) error {
	blocks, err := pemBlocks("CRL of the Puppet CA", text, "X509 CRL")
	if err != nil {
		return err
	}
	for i, der := range blocks {
		crl, err := x509.ParseRevocationList(der)
		if err != nil {
			return tutti.Wrap(tutti.CodeInvalid, err, "CRL of the Puppet CA: CRL %d", i+1)
		}
		if id, ok := strangeCRL(crl); ok {
			return tutti.Errorf(tutti.CodeInvalid, "CRL of the Puppet CA: CRL %d has the critical extension %s, which Tutti does not understand", i+1, id)
		}
		signers := map[string]bool{}
		for _, c := range ca.cas {
			if bytes.Equal(c.RawSubject, crl.RawIssuer) && !signers[issuerID(c)] && crl.CheckSignatureFrom(c) == nil {
				signers[issuerID(c)] = true
				ca.crls[issuerID(c)] = append(ca.crls[issuerID(c)], crl)
			}
		}
		if len(signers) == 0 {
			return tutti.Errorf(tutti.CodeInvalid, "CRL of the Puppet CA: no CA of the file signed CRL %d, of %.100q", i+1, crl.Issuer.String())
		}
		if end := crl.NextUpdate; !end.IsZero() && (ca.crlEnds.IsZero() || end.Before(ca.crlEnds)) {
			ca.crlEnds = end
		}
	}
	return nil
}

// strangeCRL returns a critical extension that changes the meaning of a CRL. Such an extension marks, for example, a
// CRL that lists only the changes since another CRL.
func strangeCRL(crl *x509.RevocationList) (string, bool) {
	known := []string{"2.5.29.20", "2.5.29.35", "2.5.29.21", "2.5.29.24"} // number, key id of the authority, reason, date
	all := slices.Clone(crl.Extensions)
	for _, entry := range crl.RevokedCertificateEntries {
		all = append(all, entry.Extensions...)
	}
	for _, e := range all {
		if e.Critical && !slices.Contains(known, e.Id.String()) {
			return e.Id.String(), true
		}
	}
	return "", false
}

// issuerID identifies a CA by its name and its public key. A renewed certificate of the same CA has the same id.
func issuerID(cert *x509.Certificate) string {
	return string(cert.RawSubject) + string(cert.RawSubjectPublicKeyInfo)
}

func nameOf(cert *x509.Certificate) string {
	if cert.Subject.CommonName != "" {
		return cert.Subject.CommonName
	}
	return cert.Subject.String()
}

// Subjects returns the names of the CAs for a person, in the order of the file. A name is the common name of the CA. If
// a CA has no common name, its name is the whole subject.
func (ca *PuppetCA) Subjects() []string {
	var out []string
	for _, c := range ca.cas {
		out = append(out, nameOf(c))
	}
	return out
}

// Ends returns the time at which the first of the CA certificates ends.
func (ca *PuppetCA) Ends() time.Time {
	return slices.MinFunc(ca.cas, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// CRLEnds returns the time at which the first of the CRLs ends. CRLEnds returns the zero time if there are no CRLs, or
// if no CRL has an end.
func (ca *PuppetCA) CRLEnds() time.Time { return ca.crlEnds }

// PuppetCert is what a verified certificate says about a node.
type PuppetCert struct {
	// Name is the common name of the certificate.
	Name tutti.NodeName
	// Key is the digest of the public key (DER of the SubjectPublicKeyInfo). When Puppet 8 renews a certificate, the key
	// stays the same.
	Key tutti.Digest
	// Serial is the serial number in upper-case hexadecimal digits, at least four, after `0x`. This is the form in the
	// CA's inventory.txt.
	Serial string
	// Issuer is the digest of the public key of the CA that signed the certificate.
	Issuer tutti.Digest
	// Ends is the time at which the certificate ends.
	Ends time.Time
	// Extensions has the trusted extensions by Puppet's short name. If Puppet has no short name for an extension, the key
	// is the OID. The secret pp_preshared_key is left out.
	Extensions map[string]string
}

// Verify checks a node's certificate at the time `now`. The text certPEM must contain exactly one certificate. Verify
// returns CodeInvalid if certPEM is not a certificate. Verify returns CodeRefused with the reason if the CA does not
// vouch for the certificate now, or if the certificate's name or extensions are not acceptable. If there are CRLs, there
// must be a CRL of the certificate's issuer. The CRL of a CA that signed an intermediate CA may be missing. No CRL on
// the way to the root may have ended. Verify accepts each extended key usage. With an error, the result has at most the name
// and the serial number, for the audit trail.
func (ca *PuppetCA) Verify(certPEM []byte, now time.Time) (PuppetCert, error) {
	cert, err := readPuppetCert(certPEM)
	if err != nil {
		return PuppetCert{}, err
	}
	if cert.IsCA {
		return PuppetCert{}, tutti.Errorf(tutti.CodeRefused, "the Puppet certificate of %.100q is the certificate of a CA; use the certificate of the node",
			nameOf(cert))
	}
	name, err := certname(cert)
	var issuer tutti.Digest
	if err == nil {
		issuer, err = ca.checkIssuer(cert, now)
	}
	if err == nil {
		err = ca.checkChains(cert, now)
	}
	out := PuppetCert{Name: name, Serial: puppetSerial(cert.SerialNumber)}
	if err != nil {
		return out, err
	}
	extensions, err := trustedExtensions(cert)
	if err != nil {
		return out, err
	}
	out.Key, out.Issuer, out.Ends, out.Extensions = pinOf(cert), issuer, cert.NotAfter, extensions
	return out, nil
}

// certname returns the only common name of a certificate. If a certificate had several, Puppet and Tutti could choose
// different ones.
func certname(cert *x509.Certificate) (tutti.NodeName, error) {
	names := 0
	for _, part := range cert.Subject.Names {
		if part.Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) {
			names++
		}
	}
	if names != 1 {
		return "", tutti.Errorf(tutti.CodeRefused, "the Puppet certificate has %d common names, want 1", names)
	}
	name := tutti.NodeName(cert.Subject.CommonName)
	if name.Validate() != nil {
		return "", tutti.Errorf(tutti.CodeRefused,
			"the common name %.100q of the Puppet certificate is not a node name: lower-case letters, digits, '.', '_' and '-' only", string(name))
	}
	return name, nil
}

// checkIssuer checks that one of the CAs signed the certificate, and that both are valid now. It returns the digest of
// this CA's public key.
func (ca *PuppetCA) checkIssuer(cert *x509.Certificate, now time.Time) (issuer tutti.Digest, err error) {
	who, found := "Puppet certificate of "+cert.Subject.CommonName, false
	var ended, weak error
	for _, c := range ca.cas {
		if !bytes.Equal(c.RawSubject, cert.RawIssuer) {
			continue
		}
		err := cert.CheckSignatureFrom(c)
		if insecure, ok := errors.AsType[x509.InsecureAlgorithmError](err); ok {
			weak = tutti.Wrap(tutti.CodeRefused, insecure, "%s", who)
		} else if err == nil && now.After(c.NotAfter) {
			ended = tutti.Errorf(tutti.CodeRefused, "%s: its CA %.100q ended at %s", who, nameOf(c), c.NotAfter.Format(time.RFC3339))
		} else if err == nil {
			found, issuer = true, pinOf(c)
		}
	}
	switch {
	case found && now.After(cert.NotAfter):
		return "", tutti.Errorf(tutti.CodeRefused, "%s: it expired at %s", who, cert.NotAfter.Format(time.RFC3339))
	case found && now.Before(cert.NotBefore):
		return "", tutti.Errorf(tutti.CodeRefused, "%s: it is not valid before %s; check the clocks", who, cert.NotBefore.Format(time.RFC3339))
	case found:
		return issuer, nil
	case ended != nil:
		return "", ended
	case weak != nil:
		return "", weak
	}
	return "", tutti.Errorf(tutti.CodeRefused, "%s: another CA signed it, with the name %.100q; this fleet trusts %.500q",
		who, cert.Issuer.String(), strings.Join(ca.Subjects(), ", "))
}

// Revokes reports whether a CRL of a CA has the serial number. The arguments have the form of PuppetCert.Issuer and
// PuppetCert.Serial.
func (ca *PuppetCA) Revokes(issuer tutti.Digest, serial string) bool {
	for _, c := range ca.cas {
		if pinOf(c) != issuer {
			continue
		}
		for _, crl := range ca.crls[issuerID(c)] {
			for _, entry := range crl.RevokedCertificateEntries {
				if puppetSerial(entry.SerialNumber) == serial {
					return true
				}
			}
		}
	}
	return false
}

// checkChains checks that there is a way from the certificate to a root without a revoked certificate.
func (ca *PuppetCA) checkChains(cert *x509.Certificate, now time.Time) error {
	who := "Puppet certificate of " + cert.Subject.CommonName
	if ids := cert.UnhandledCriticalExtensions; len(ids) > 0 {
		return tutti.Errorf(tutti.CodeRefused, "%s: it has the critical extension %s, which Tutti does not understand", who, ids[0])
	}
	chains, err := cert.Verify(x509.VerifyOptions{
		Roots: ca.roots, Intermediates: ca.intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return tutti.Wrap(tutti.CodeRefused, err, "%s", who)
	}
	for i, chain := range chains {
		// The error of the first chain is reported. Two chains exist only while a CA has an old and a renewed certificate.
		if errChain := ca.checkRevoked(who, chain, now); errChain == nil {
			return nil
		} else if i == 0 {
			err = errChain
		}
	}
	return err
}

func (ca *PuppetCA) checkRevoked(who string, chain []*x509.Certificate, now time.Time) error {
	if len(ca.crls) == 0 {
		return nil
	}
	for i, cert := range chain[:len(chain)-1] {
		issuer := chain[i+1]
		if i > 0 {
			who += fmt.Sprintf(": its CA %.100q", nameOf(cert))
		}
		crls := ca.crls[issuerID(issuer)]
		for _, crl := range crls {
			for _, entry := range crl.RevokedCertificateEntries {
				if entry.SerialNumber.Cmp(cert.SerialNumber) == 0 {
					return tutti.Errorf(tutti.CodeRefused, "%s: revoked at %s, serial number %s",
						who, entry.RevocationTime.Format(time.RFC3339), puppetSerial(cert.SerialNumber))
				}
			}
		}
		if len(crls) == 0 && i == 0 {
			return tutti.Errorf(tutti.CodeRefused,
				`%s: no CRL of its CA %.100q is known, only CRLs of other CAs; run "tutti server trust-ca" with the CRLs of all CAs`, who, nameOf(issuer))
		}
		if end, ended := crlsEnded(crls, now); ended {
			return tutti.Errorf(tutti.CodeRefused, `%s: the CRL of %.100q ended at %s, so a revocation may be missing; run "tutti server trust-ca" with the new CRL`,
				who, nameOf(issuer), end.Format(time.RFC3339))
		}
	}
	return nil
}

// crlsEnded reports whether all CRLs of a CA have ended, and when the last of them ended.
func crlsEnded(crls []*x509.RevocationList, now time.Time) (last time.Time, ended bool) {
	for _, crl := range crls {
		if crl.NextUpdate.IsZero() || !crl.NextUpdate.Before(now) {
			return time.Time{}, false
		}
		if crl.NextUpdate.After(last) {
			last = crl.NextUpdate
		}
	}
	return last, len(crls) > 0
}

// puppetSerial formats a serial number as Puppet's CA does in inventory.txt, with upper-case digits.
func puppetSerial(serial *big.Int) string { return fmt.Sprintf("0x%04X", serial) }

// pemBlocks returns the contents of the blocks in a PEM text, which must all be of one kind. The function pem.Decode
// skips a damaged block without an error, so pemBlocks counts the beginnings of blocks.
func pemBlocks(what string, text []byte, kind string) ([][]byte, error) {
	var out [][]byte
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s: the file contains a private key; give only a file with blocks %q, and keep the key where it is", what, kind)
		}
		if block.Type != kind {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s: the file contains a block %.100q, want only blocks %q", what, block.Type, kind)
		}
		if bytes.Count(text[:len(text)-len(rest)], []byte("-----BEGIN")) != 1 {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s: PEM block %d is damaged", what, len(out)+1)
		}
		out, text = append(out, block.Bytes), rest
	}
	if len(bytes.TrimSpace(text)) > 0 && len(out) > 0 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s: the file has other content after PEM block %d", what, len(out))
	}
	if len(bytes.TrimSpace(text)) > 0 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s: the file is not in PEM form, want blocks %q", what, kind)
	}
	return out, nil
}

func readPuppetCert(text []byte) (*x509.Certificate, error) {
	if len(text) > maxPuppetCert {
		return nil, tutti.Errorf(tutti.CodeInvalid, "Puppet certificate: %d bytes, at most %d", len(text), maxPuppetCert)
	}
	blocks, err := pemBlocks("Puppet certificate", text, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	if len(blocks) != 1 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "Puppet certificate: %d certificates in PEM form, want 1", len(blocks))
	}
	cert, err := parsePuppetCert(blocks[0])
	return cert, tutti.Wrap(tutti.CodeInvalid, err, "Puppet certificate")
}

// nsComment is the OID of a comment that Puppet's CA writes into each certificate.
const nsComment = "2.16.840.1.113730.1.13"

// parsePuppetCert parses a certificate. Extensions of Puppet may be critical, because Tutti reads these extensions.
func parsePuppetCert(der []byte) (*x509.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	cert.UnhandledCriticalExtensions = slices.DeleteFunc(cert.UnhandledCriticalExtensions, func(id asn1.ObjectIdentifier) bool {
		return isTrusted(id) || id.String() == nsComment
	})
	return cert, nil
}

// puppetArc is tutti.ExtensionArc.
var puppetArc = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1}

func isTrusted(id asn1.ObjectIdentifier) bool {
	n := len(puppetArc)
	return len(id) > n+1 && id[:n].Equal(puppetArc) && id[n] >= 1 && id[n] <= 3
}

func trustedExtensions(cert *x509.Certificate) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range cert.Extensions {
		if !isTrusted(e.Id) {
			continue
		}
		name := tutti.ExtensionName(e.Id.String())
		if name == tutti.SecretExtension {
			continue
		}
		value, err := extensionText(e.Value)
		if err != nil {
			return nil, tutti.Wrap(tutti.CodeRefused, err, "Puppet certificate of %s: extension %.100s", cert.Subject.CommonName, name)
		}
		out[name] = value
	}
	if len(out) > tutti.MaxExtensions {
		return nil, tutti.Errorf(tutti.CodeRefused, "Puppet certificate of %s: %d trusted extensions, at most %d", cert.Subject.CommonName, len(out), tutti.MaxExtensions)
	}
	return out, nil
}

// extensionText decodes the value of an extension as Puppet does (custom_extensions in lib/puppet/ssl/certificate.rb).
// Puppet decodes ASN.1, and takes the bytes themselves if they are not ASN.1. Old releases of Puppet wrote such bytes.
func extensionText(raw []byte) (string, error) {
	if len(raw) > tutti.MaxExtensionLength+4 { // a text of this length has a header of 4 bytes
		return "", fmt.Errorf("the value is longer than %d bytes", tutti.MaxExtensionLength)
	}
	value := string(raw)
	if v, ok := decodeASN1(raw); ok {
		text, err := asn1Text(v)
		if err != nil {
			return "", err
		}
		value = text
	}
	if len(value) > tutti.MaxExtensionLength {
		return "", fmt.Errorf("the value is longer than %d bytes", tutti.MaxExtensionLength)
	}
	if !utf8.ValidString(value) {
		return "", errors.New("the value is not UTF-8")
	}
	return value, nil
}

// decodeASN1 returns the only value in raw. It reports false if raw is not ASN.1, also inside of the value.
func decodeASN1(raw []byte) (asn1.RawValue, bool) {
	var v asn1.RawValue
	rest, err := asn1.Unmarshal(raw, &v)
	if err != nil || len(rest) > 0 || v.Class == asn1.ClassUniversal && v.Tag == 0 {
		return v, false
	}
	for inner := v.Bytes; v.IsCompound && len(inner) > 0; {
		var part asn1.RawValue
		if inner, err = asn1.Unmarshal(inner, &part); err != nil {
			return v, false
		}
		if _, ok := decodeASN1(part.FullBytes); !ok {
			return v, false
		}
	}
	return v, true
}

func asn1Text(v asn1.RawValue) (string, error) {
	switch {
	case v.IsCompound:
		return "", errors.New("the value is not a text, but a list")
	case v.Class != asn1.ClassUniversal:
		return string(v.Bytes), nil
	}
	switch v.Tag {
	case asn1.TagBoolean:
		return strconv.FormatBool(slices.ContainsFunc(v.Bytes, func(b byte) bool { return b != 0 })), nil
	case asn1.TagInteger, asn1.TagEnum:
		var n *big.Int
		if _, err := asn1.Unmarshal(append([]byte{asn1.TagInteger}, v.FullBytes[1:]...), &n); err != nil {
			return string(v.FullBytes), nil //nolint:nilerr // Puppet takes the bytes, if they are not a number
		}
		return n.String(), nil
	case asn1.TagBitString, asn1.TagNull, asn1.TagOID, asn1.TagSequence, asn1.TagSet, asn1.TagUTCTime, asn1.TagGeneralizedTime:
		return "", fmt.Errorf("the value is not a text, but ASN.1 with the tag %d", v.Tag)
	}
	return string(v.Bytes), nil
}
