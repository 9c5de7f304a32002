package identity

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
)

// keySet is the set of keys with which a server signs. keySet has the server's CA, its certificate, and the keys of
// its bus (ADR 0027).
type keySet struct {
	ca, server *keyPair
	operator   nkeys.KeyPair // signs accounts

	sys, log, nodes nkeys.KeyPair // these keys sign the users of an account
}

// accountNames are the public keys that the bus uses as names of its accounts. The names do not change when the keys
// are rotated, because JetStream uses one of them as a directory name.
type accountNames struct {
	Sys   string `json:"sys"`
	Log   string `json:"log"`
	Nodes string `json:"nodes"`
	// The field Was contains the pins of the CAs of earlier key sets.
	Was []tutti.Digest `json:"was,omitempty"`
}

var (
	operatorSeedRE = regexp.MustCompile(`^SO[A-Z2-7]{56}$`)
	accountSeedRE  = regexp.MustCompile(`^SA[A-Z2-7]{56}$`)
)

// busKey describes one key of the bus.
type busKey struct {
	file   string
	pair   *nkeys.KeyPair
	create func() (nkeys.KeyPair, error)
	kind   *regexp.Regexp
}

func (s *keySet) busKeys() []busKey {
	return []busKey{
		{fileOperator, &s.operator, nkeys.CreateOperator, operatorSeedRE},
		{fileSys, &s.sys, nkeys.CreateAccount, accountSeedRE},
		{fileLog, &s.log, nkeys.CreateAccount, accountSeedRE},
		{fileNodes, &s.nodes, nkeys.CreateAccount, accountSeedRE},
	}
}

// newKeySet makes a key set. The server certificate of the set contains the names in hosts.
func newKeySet(hosts []string) (*keySet, error) {
	s := &keySet{}
	for _, k := range s.busKeys() {
		var err error
		if *k.pair, err = k.create(); err != nil {
			return nil, fmt.Errorf("make a bus key: %w", err)
		}
	}
	var err error
	if s.ca, err = newCA(); err == nil {
		s.server, err = s.issue(serverTemplate(hosts))
	}
	return s, err
}

// The method `issue` makes a key and a certificate for this key. The set's CA signs the
// certificate.
func (s *keySet) issue(template *x509.Certificate) (*keyPair, error) {
	return sign(template, s.ca.cert, s.ca.key)
}

func (s *keySet) pin() tutti.Digest { return pinOf(s.ca.cert) }

// The method `name` returns the public keys that identify the key set.
func (s *keySet) name() (tutti.KeySet, error) {
	issuer, err := public(s.nodes)
	return tutti.KeySet{CA: s.pin(), Issuer: issuer}, err
}

// The method `names` returns the names of the bus's accounts. It works only for the first key set
// of a fleet.
func (s *keySet) names() (accountNames, error) {
	var out accountNames
	for _, k := range []struct {
		of   nkeys.KeyPair
		name *string
	}{{s.sys, &out.Sys}, {s.log, &out.Log}, {s.nodes, &out.Nodes}} {
		var err error
		if *k.name, err = public(k.of); err != nil {
			return out, err
		}
	}
	return out, nil
}

// The method `files` returns the files of the set, in the order in which they replace the files of another set. The
// CA's certificate comes last.
func (s *keySet) files() ([]file, error) {
	var out []file
	for _, k := range s.busKeys() {
		seed, err := (*k.pair).Seed()
		if err != nil {
			return nil, fmt.Errorf("seed of a bus key: %w", err)
		}
		out = append(out, file{k.file, seed})
	}
	return append(out,
		file{fileCAKey, s.ca.keyPEM()},
		// The key comes before the certificate. After a crash between the two writes, key and certificate do not
		// match, and Load reports a corrupt file. So a server never runs with a certificate of another key.
		file{fileServerKey, s.server.keyPEM()}, file{fileServer, s.server.certPEM()},
		file{fileCA, s.ca.certPEM()},
	), nil
}

// loadKeySet reads a key set. The function `read` returns the content of a file. loadKeySet returns the same
// errors as Load.
func loadKeySet(dir string, read func(name string) ([]byte, error)) (*keySet, error) {
	s := &keySet{}
	var err error
	if s.ca, err = loadPairBy(dir, fileCA, fileCAKey, read); err != nil {
		return nil, err
	}
	if !s.ca.cert.IsCA {
		return nil, corrupt(dir, fileCA)
	}
	if s.server, err = loadPairBy(dir, fileServer, fileServerKey, read); err != nil {
		return nil, err
	}
	if s.server.cert.CheckSignatureFrom(s.ca.cert) != nil {
		return nil, corrupt(dir, fileServer)
	}
	for _, k := range s.busKeys() {
		seed, err := read(k.file)
		if err != nil {
			return nil, err
		}
		if *k.pair, err = parseSeed(seed, k); err != nil {
			return nil, corrupt(dir, k.file)
		}
	}
	return s, nil
}

func parseSeed(seed []byte, k busKey) (nkeys.KeyPair, error) {
	if !k.kind.Match(seed) {
		return nil, errors.New("not a seed of its kind")
	}
	return nkeys.FromSeed(seed)
}

// loadNames reads the names of the bus's accounts. Before the first rotation, the public keys of the accounts are
// also their names.
func loadNames(dir string, present *keySet) (accountNames, error) {
	raw, err := readFile(dir, fileNames)
	if errors.Is(err, ErrMissing) {
		return present.names()
	}
	var out accountNames
	if err != nil {
		return out, err
	}
	if json.Unmarshal(raw, &out) != nil {
		return out, corrupt(dir, fileNames)
	}
	for _, name := range []string{out.Sys, out.Log, out.Nodes} {
		if !nkeys.IsValidPublicAccountKey(name) {
			return out, corrupt(dir, fileNames)
		}
	}
	return out, nil
}
