// Package identity makes and checks the credentials of a fleet. The credentials are the CA and its certificates, the
// nkeys and JWTs of the bus, join tokens, enrolment, and the signatures of code.
//
// A node's private keys never leave the node. An operator's private keys never stay on the server. An attacker who
// has read the server's directory can admit nodes and issue operators' certificates. After a call of ForgetCodeKey,
// even such an attacker cannot sign code.
package identity

import (
	"cmp"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/tutti-project/tutti"
)

// Authority makes and checks credentials on the server. Any number of goroutines may use it.
type Authority struct {
	// Lives are the lifetimes of issued credentials. Set them before you use the Authority.
	Lives Lives

	dir     string
	codePub ed25519.PublicKey
	fleet   tutti.Digest

	mu       sync.Mutex // mu guards the fields below and their files
	present  *keySet
	next     *keySet // nil if no rotation is going on
	phase    tutti.RotationPhase
	names    accountNames
	codeKey  ed25519.PrivateKey // nil after ForgetCodeKey
	nodesJWT string             // JWT of the nodes' account; the JWT lists the revoked keys
}

// Lives are the lifetimes of credentials. A field that is zero has the default value.
type Lives struct {
	Node     time.Duration // 180 days
	Operator time.Duration // a year
}

func (l Lives) node() time.Duration     { return cmp.Or(l.Node, nodeLife) }
func (l Lives) operator() time.Duration { return cmp.Or(l.Operator, operatorLife) }

// These are the files of the server's directory.
const (
	fileCA        = "ca.crt"
	fileCAKey     = "ca.key"
	fileServer    = "server.crt"
	fileServerKey = "server.key"
	fileOperator  = "bus-operator.nk"
	fileSys       = "bus-sys.nk"
	fileLog       = "bus-log.nk"
	fileNodes     = "bus-nodes.nk"
	fileNodesJWT  = "bus-nodes.jwt"
	fileNames     = "bus-names.json"
	fileRotation  = "rotation.json"
	fileCodeKey   = "code.key"
	fileCodePub   = "code.pub"
)

// Init makes all keys and certificates of a server in dir. If dir exists and is not empty, Init returns
// CodeConflict and changes nothing. Nodes and operators reach the server under the names and addresses
// in hosts. Init writes the CA's certificate last. So if that file is missing, Init was interrupted.
func Init(dir string, hosts []string) (*Authority, error) {
	if err := newDir(dir); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	var err error
	if a.present, err = newKeySet(hosts); err != nil {
		return nil, err
	}
	if a.names, err = a.present.names(); err != nil {
		return nil, err
	}
	if a.nodesJWT, err = signAccount(a.present, jwt.NewAccountClaims(a.names.Nodes), "NODES", a.present.nodes); err != nil {
		return nil, err
	}
	if err := writeFile(dir, fileNodesJWT, []byte(a.nodesJWT)); err != nil {
		return nil, err
	}
	if err := a.makeCodeKey(); err != nil {
		return nil, err
	}
	files, err := a.present.files()
	if err != nil {
		return nil, err
	}
	if a.fleet, err = KeepFleet(dir, firstPin(a)); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := writeFile(dir, f.name, f.content); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Load reads the files that Init and later rotations wrote. If a crash interrupted the end of a rotation, Load
// completes the rotation. Errors name the file. Errors wrap ErrMissing, ErrCorrupt or ErrExposed.
func Load(dir string) (*Authority, error) {
	a := &Authority{dir: dir}
	var err error
	if a.next, a.phase, err = loadRotation(dir); err != nil {
		return nil, err
	}
	if a.present, err = loadKeySet(dir, func(name string) ([]byte, error) { return readFile(dir, name) }); err != nil {
		return nil, err
	}
	if a.names, err = loadNames(dir, a.present); err != nil {
		return nil, err
	}
	if err := a.loadNodes(); err != nil {
		return nil, err
	}
	if a.fleet, err = KeepFleet(dir, firstPin(a)); err != nil {
		return nil, err
	}
	return a, a.loadCodeKey()
}

// IssueServer makes a new server certificate for hosts, localhost, 127.0.0.1 and ::1. New connections use this
// certificate from now on.
func (a *Authority) IssueServer(hosts []string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.trusted() {
		pair, err := s.issue(serverTemplate(hosts))
		if err != nil {
			return err
		}
		if err := a.useServer(s, pair); err != nil {
			return err
		}
	}
	return nil
}

// useServer replaces the server certificate of a key set. The caller holds a.mu.
func (a *Authority) useServer(s *keySet, pair *keyPair) error {
	s.server = pair
	if s == a.next {
		return a.writeRotation(a.phase, s)
	}
	// Write the key first. A crash between the two writes leaves a key and a certificate that do not match. Load then
	// reports a corrupt file. So a server never runs with a certificate of another key.
	if err := writeFile(a.dir, fileServerKey, pair.keyPEM()); err != nil {
		return err
	}
	return writeFile(a.dir, fileServer, pair.certPEM())
}

// The method `trusted` returns the key sets that are trusted now. The caller holds a.mu.
func (a *Authority) trusted() []*keySet {
	if a.next == nil {
		return []*keySet{a.present}
	}
	return []*keySet{a.present, a.next}
}

// The method `issuing` returns the key set that issues credentials. The caller holds a.mu.
func (a *Authority) issuing() *keySet {
	if a.next != nil && a.phase == tutti.RotationSwitched {
		return a.next
	}
	return a.present
}

// The method `shown` returns a key set whose certificate the client can check. The client's list of
// protocols names the CAs that the client trusts. If the client names no CA, the result is the present
// key set, because such a client knows the present CA or its digest. The caller holds a.mu.
func (a *Authority) shown(protocols []string) *keySet {
	sets := []*keySet{a.issuing()}
	sets = append(sets, a.trusted()...)
	for _, s := range sets {
		if slices.Contains(protocols, tutti.CAProtocol(s.pin())) {
			return s
		}
	}
	return a.present
}

// showServer returns the server's certificate for a client that names these protocols. If the certificate expires
// soon or is not valid yet, showServer makes a new one for the same names. If the server showed an expired
// certificate, all connections of the fleet would fail.
func (a *Authority) showServer(protocols []string) tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shown(protocols)
	if old := s.server.cert; time.Until(old.NotAfter) > serverRenew && time.Until(old.NotBefore) <= 0 {
		return s.server.tls(s.ca.cert)
	}
	if pair, err := s.issue(serverTemplate(hostsOf(s.server.cert))); err == nil {
		_ = a.useServer(s, pair)
	}
	return s.server.tls(s.ca.cert)
}

// Ends returns when the CA and the server's certificate end. During a rotation the certificate that ends first counts.
func Ends(a *Authority) (ca, server time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.trusted() {
		if ends := s.ca.cert.NotAfter; ca.IsZero() || ends.Before(ca) {
			ca = ends
		}
		if ends := s.server.cert.NotAfter; server.IsZero() || ends.Before(server) {
			server = ends
		}
	}
	return ca, server
}

// Names returns an error if the host is in none of the certificates that the server shows to
// clients.
func (a *Authority) Names(host string) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.trusted() {
		if err = s.server.cert.VerifyHostname(host); err == nil {
			return nil
		}
	}
	return err
}

// hostsOf returns the names and addresses in a server's certificate.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// CA returns the certificates of the trusted CAs as PEM. The older CA comes first.
func (a *Authority) CA() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []byte
	for _, s := range a.trusted() {
		out = append(out, s.ca.certPEM()...)
	}
	return out
}

// Pin returns the digest of the CA's public key. Join tokens contain this digest. While two CAs are trusted, Pin
// returns the digest of the older one. The server shows a certificate of the older CA to clients that name no CA.
func (a *Authority) Pin() tutti.Digest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present.pin()
}

// firstPin returns the pin of the oldest CA of the fleet that this server knows.
func firstPin(a *Authority) tutti.Digest {
	if len(a.names.Was) > 0 {
		return a.names.Was[0]
	}
	return a.present.pin()
}

// Hold calls f and makes sure that no file of the authority changes while f runs.
func (a *Authority) Hold(f func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return f()
}

// Fleet returns the id of the fleet, which is the pin of its first CA.
func (a *Authority) Fleet() tutti.Digest { return a.fleet }

// CodePublicKey returns the fleet's first code key. The code keys after the first one are in the
// statements of kind trust.
func (a *Authority) CodePublicKey() ed25519.PublicKey { return a.codePub }

func loadPair(dir, certName, keyName string) (*keyPair, error) {
	return loadPairBy(dir, certName, keyName, func(name string) ([]byte, error) { return readFile(dir, name) })
}

func loadPairBy(dir, certName, keyName string, read func(name string) ([]byte, error)) (*keyPair, error) {
	certPEM, err := read(certName)
	if err != nil {
		return nil, err
	}
	keyPEM, err := read(keyName)
	if err != nil {
		return nil, err
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, corrupt(dir, certName)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, corrupt(dir, keyName)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.Join(corrupt(dir, keyName), errors.New("the key does not match the certificate"))
	}
	return &keyPair{cert: cert, key: key}, nil
}
