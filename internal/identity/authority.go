// Package identity makes and checks everything by which the parts of a fleet know each other: the CA and its
// certificates, the nkeys and JWTs of the bus, join tokens, enrolment, and the signature of code.
//
// A node's private keys never leave the node, and an operator's private keys never stay on the server. An attacker who
// has the server's directory can admit nodes and issue operators. After ForgetCodeKey was called, they still cannot
// sign code.
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

// Authority is the server's side of all identities. Any number of goroutines may use it.
type Authority struct {
	// Lives are how long issued credentials are valid. Set it before use.
	Lives Lives

	dir     string
	codePub ed25519.PublicKey
	fleet   tutti.Digest

	mu       sync.Mutex // guards the fields below and their files
	present  *keySet
	next     *keySet // nil: no rotation goes on
	phase    tutti.RotationPhase
	names    accountNames
	codeKey  ed25519.PrivateKey // nil after it was forgotten
	nodesJWT string             // the account of the nodes, with its revocations
}

// Lives are how long credentials are valid. Zero values take the defaults.
type Lives struct {
	Node     time.Duration // 180 days
	Operator time.Duration // a year
}

func (l Lives) node() time.Duration     { return cmp.Or(l.Node, nodeLife) }
func (l Lives) operator() time.Duration { return cmp.Or(l.Operator, operatorLife) }

// The files of the server's directory.
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

// Init makes all key material of a server in dir, which must be empty or not exist (else CodeConflict, and nothing is
// changed). Hosts are the names and addresses under which nodes and operators reach the server. The CA's certificate is
// written last: if it is missing, Init has crashed.
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
	if a.fleet, err = KeepFleet(dir, a.first()); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := writeFile(dir, f.name, f.content); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Load reads what Init and later rotations have written. It completes a rotation whose end was cut off. Errors name the
// file and are ErrMissing, ErrCorrupt or ErrExposed.
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
	if a.fleet, err = KeepFleet(dir, a.first()); err != nil {
		return nil, err
	}
	return a, a.loadCodeKey()
}

// IssueServer makes a new server certificate for hosts, localhost, 127.0.0.1 and ::1. New connections use it from now
// on.
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

// useServer puts a server certificate into use. The caller holds a.mu.
func (a *Authority) useServer(s *keySet, pair *keyPair) error {
	s.server = pair
	if s == a.next {
		return a.writeRotation(a.phase, s)
	}
	// Write the key first. A crash in between leaves a pair that does not fit and is reported as corrupt. A server with
	// another key's certificate never runs.
	if err := writeFile(a.dir, fileServerKey, pair.keyPEM()); err != nil {
		return err
	}
	return writeFile(a.dir, fileServer, pair.certPEM())
}

// trusted are the key sets that are trusted now. The caller holds a.mu.
func (a *Authority) trusted() []*keySet {
	if a.next == nil {
		return []*keySet{a.present}
	}
	return []*keySet{a.present, a.next}
}

// issuing is the key set that issues credentials. The caller holds a.mu.
func (a *Authority) issuing() *keySet {
	if a.next != nil && a.phase == tutti.RotationSwitched {
		return a.next
	}
	return a.present
}

// shown is a key set whose certificate the client can check, by the protocols that it names. A client that names none
// knows the present CA, or its digest. The caller holds a.mu.
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

// showServer returns the server's certificate for a client that names these protocols. If it soon ends or is not valid
// yet, showServer makes one for the same names. Else all connections of the fleet would end with it.
func (a *Authority) showServer(protocols []string) tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.shown(protocols)
	if old := s.server.cert; time.Until(old.NotAfter) > serverRenew && time.Until(old.NotBefore) <= 0 {
		return s.server.tls(s.ca.cert)
	}
	if pair, err := s.issue(serverTemplate(hostsOf(s.server.cert))); err == nil {
		_ = a.useServer(s, pair) // on a full disk it serves until the next start, which makes another one
	}
	return s.server.tls(s.ca.cert)
}

// Names returns an error unless a certificate names the host that the server shows to some client.
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

// hostsOf are the names and addresses in a server's certificate.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// CA returns the certificates of the trusted CAs, as PEM, the older one first.
func (a *Authority) CA() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []byte
	for _, s := range a.trusted() {
		out = append(out, s.ca.certPEM()...)
	}
	return out
}

// Pin returns the digest of the CA's public key, which join tokens carry. While two CAs are trusted, it is the older
// one's, because the server shows that one to clients that name none.
func (a *Authority) Pin() tutti.Digest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present.pin()
}

// first is the pin of the fleet's first CA, as far as this server knows.
func (a *Authority) first() tutti.Digest {
	if len(a.names.Was) > 0 {
		return a.names.Was[0]
	}
	return a.present.pin()
}

// Hold calls f while no file of the authority can change.
func (a *Authority) Hold(f func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return f()
}

// Fleet returns the id of the fleet: the pin of its first CA.
func (a *Authority) Fleet() tutti.Digest { return a.fleet }

// CodePublicKey returns the first key that signed code. Statements of kind trust say which keys came after it.
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
		return nil, errors.Join(corrupt(dir, keyName), errors.New("the key is not the certificate's"))
	}
	return &keyPair{cert: cert, key: key}, nil
}
