// Package identity makes and checks everything by which the parts of a fleet
// know each other: the CA and its certificates, the nkeys and JWTs of the bus,
// join tokens, enrolment, and the signature of code.
//
// A node's private keys never leave it and an operator's never stay on the
// server. Whoever has the server's directory can admit nodes and issue
// operators; once ForgetCodeKey has been called he still cannot sign code.
package identity

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
)

// Authority is the server's side of all identities. Any number of goroutines
// may use it.
type Authority struct {
	// Lives are how long what it issues is good. To be set before use.
	Lives Lives

	dir      string
	ca       *x509.Certificate
	caKey    *ecdsa.PrivateKey
	operator nkeys.KeyPair // of the bus; signs accounts
	sys      nkeys.KeyPair
	log      nkeys.KeyPair
	nodes    nkeys.KeyPair
	codePub  ed25519.PublicKey
	fleet    tutti.Digest

	mu       sync.Mutex // guards the rest and the files behind it
	server   tls.Certificate
	codeKey  ed25519.PrivateKey // nil once it was forgotten
	nodesJWT string             // the account of the nodes, with its revocations
}

// Lives are how long credentials are good. Zero values take the defaults.
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
	fileCodeKey   = "code.key"
	fileCodePub   = "code.pub"
)

// Init makes all key material of a server in dir, which must be empty or not
// exist (CodeConflict, and nothing is changed). Hosts are the names and
// addresses under which nodes and operators reach the server. The CA's
// certificate is written last: a directory without it was left by a crash.
func Init(dir string, hosts []string) (*Authority, error) {
	if err := newDir(dir); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	if err := a.makeBusKeys(); err != nil {
		return nil, err
	}
	if err := a.makeCodeKey(); err != nil {
		return nil, err
	}
	ca, err := newCA()
	if err != nil {
		return nil, err
	}
	a.ca, a.caKey = ca.cert, ca.key
	if err := writeFile(dir, fileCAKey, ca.keyPEM()); err != nil {
		return nil, err
	}
	if err := a.IssueServer(hosts); err != nil {
		return nil, err
	}
	if a.fleet, err = KeepFleet(dir, a.Pin()); err != nil {
		return nil, err
	}
	if err := writeFile(dir, fileCA, ca.certPEM()); err != nil {
		return nil, err
	}
	return a, nil
}

// Load reads what Init made. Errors name the file and are ErrMissing,
// ErrCorrupt or ErrExposed.
func Load(dir string) (*Authority, error) {
	a := &Authority{dir: dir}
	ca, err := loadPair(dir, fileCA, fileCAKey)
	if err != nil {
		return nil, err
	}
	if !ca.cert.IsCA {
		return nil, corrupt(dir, fileCA)
	}
	a.ca, a.caKey = ca.cert, ca.key
	server, err := loadPair(dir, fileServer, fileServerKey)
	if err != nil {
		return nil, err
	}
	if server.cert.CheckSignatureFrom(ca.cert) != nil {
		return nil, corrupt(dir, fileServer)
	}
	a.server = server.tls(ca.cert)
	if err := a.loadBusKeys(); err != nil {
		return nil, err
	}
	if a.fleet, err = KeepFleet(dir, a.Pin()); err != nil {
		return nil, err
	}
	return a, a.loadCodeKey()
}

// IssueServer makes a new server certificate for hosts, localhost, 127.0.0.1
// and ::1, used for new connections from now on.
func (a *Authority) IssueServer(hosts []string) error {
	pair, err := a.issue(serverTemplate(hosts))
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.useServer(pair)
}

// useServer needs a.mu.
func (a *Authority) useServer(pair *keyPair) error {
	a.server = pair.tls(a.ca)
	// The key first: a crash in between leaves a pair that does not fit and is
	// reported as corrupt, never one that serves with another's key.
	if err := writeFile(a.dir, fileServerKey, pair.keyPEM()); err != nil {
		return err
	}
	return writeFile(a.dir, fileServer, pair.certPEM())
}

// renewServer replaces a server certificate that soon ends, or has not begun, for the same names:
// nobody else would, and with it ends every connection of the fleet.
func (a *Authority) renewServer() tls.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.server.Leaf
	if time.Until(old.NotAfter) > serverRenew && time.Until(old.NotBefore) <= 0 {
		return a.server
	}
	hosts := slices.Clone(old.DNSNames)
	for _, ip := range old.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	if pair, err := a.issue(serverTemplate(hosts)); err == nil {
		_ = a.useServer(pair) // on a full disk it serves until the next start, which makes another one
	}
	return a.server
}

// CA returns the CA's certificate as PEM.
func (a *Authority) CA() []byte { return certPEM(a.ca) }

// Pin returns the digest of the CA's public key, which join tokens carry.
func (a *Authority) Pin() tutti.Digest { return pinOf(a.ca) }

// Fleet returns the id of the fleet: the pin of the CA with which it began.
func (a *Authority) Fleet() tutti.Digest { return a.fleet }

// CodePublicKey returns the first key that signed code. Statements of kind trust say what came after it.
func (a *Authority) CodePublicKey() ed25519.PublicKey { return a.codePub }

func loadPair(dir, certName, keyName string) (*keyPair, error) {
	certPEM, err := readFile(dir, certName)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readFile(dir, keyName)
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
