package identity

import (
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/wire"
)

// EnrolRequest is a request to admit a node with the key `Key` under the name `Name`. The signature proves that
// the sender has the private key. The signature is valid only for this token and this name.
type EnrolRequest struct {
	Token     tutti.TokenID  `json:"token"`
	Secret    []byte         `json:"secret"`
	Name      tutti.NodeName `json:"name"`
	Key       tutti.NodeKey  `json:"key"`
	BoxKey    string         `json:"box_key"`
	Signature []byte         `json:"signature"`
}

// EnrolResponse is the information that an admitted node needs. CodeKey is the operators' public key. The node
// trusts this key from now on.
type EnrolResponse struct {
	Node    tutti.NodeName `json:"node"`
	JWT     string         `json:"jwt"`
	CA      string         `json:"ca"`  // certificates of one or several CAs in PEM
	Bus     string         `json:"bus"` // host:port
	CodeKey string         `json:"code_key"`
	Time    time.Time      `json:"time"`          // the server's time
	Was     []tutti.Digest `json:"was,omitempty"` // digests of the earlier CAs of this fleet
	// Fleet is the id of the fleet (see FleetOf).
	Fleet tutti.Digest `json:"fleet,omitempty"`
	// Trust is the last statement about code keys. If Trust is nil, CodeKey is still the first key.
	Trust *tutti.Statement `json:"trust,omitempty"`
	// Operators is the list of operators who sign actions. If Operators is nil, there is no list.
	Operators *tutti.Statement `json:"operators,omitempty"`
}

// fileMembership is the file with the EnrolResponse on a node.
const fileMembership = "membership.json"

// Sign signs the request. The seed belongs to the request's key.
func (r *EnrolRequest) Sign(seed []byte) error {
	var err error
	r.Signature, err = signWithSeed("sign enrolment", seed, r.message())
	return err
}

// Verify checks the form of the request, and that the owner of Key signed it. Verify does not check the token.
func (r *EnrolRequest) Verify() error {
	if err := r.Name.Validate(); err != nil {
		return err
	}
	return verifyKeys("enrolment of "+string(r.Name), r.Key, r.BoxKey, r.message(), r.Signature)
}

// signWithSeed signs a message with a node's seed. The text `doing` begins each error.
func signWithSeed(doing string, seed, message []byte) ([]byte, error) {
	kp, err := nkeys.FromSeed(seed)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "%s", doing)
	}
	signature, err := kp.Sign(message)
	return signature, tutti.Wrap(tutti.CodeInvalid, err, "%s", doing)
}

// verifyKeys checks the form of a node's two public keys, and that the owner of `key` signed the message. The text
// `what` begins the errors.
func verifyKeys(what string, key tutti.NodeKey, boxKey string, message, signature []byte) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if seal.CheckKey(boxKey) != nil {
		return tutti.Errorf(tutti.CodeInvalid, "%s: the box key is not an X25519 key", what)
	}
	kp, err := nkeys.FromPublicKey(string(key))
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "%s: key %s", what, key)
	}
	if kp.Verify(message, signature) != nil {
		return tutti.Errorf(tutti.CodeUnauthenticated, "%s: not signed by key %s", what, key)
	}
	return nil
}

func (r *EnrolRequest) message() []byte {
	return encodeParts("tutti-enrol-1", []byte(r.Token), r.Secret, []byte(r.Name), []byte(r.Key), []byte(r.BoxKey))
}

// encodeParts joins parts into one text. Different parts never give the same text.
func encodeParts(purpose string, parts ...[]byte) []byte {
	message := append([]byte(purpose), 0)
	for _, p := range parts {
		message = binary.BigEndian.AppendUint64(message, uint64(len(p)))
		message = append(message, p...)
	}
	return message
}

// Validate returns an error if a node could not use the response.
func (r *EnrolResponse) Validate() error {
	if err := r.Node.Validate(); err != nil {
		return err
	}
	if _, err := ClientTLS([]byte(r.CA)); err != nil {
		return err
	}
	_, err := r.Trusts()
	if err == nil && r.Operators != nil {
		_, err = ReadOperators(*r.Operators)
	}
	if err != nil {
		return err
	}
	if r.JWT == "" || r.Bus == "" {
		return tutti.Errorf(tutti.CodeInvalid, "enrolment of %s: the server's answer has no JWT or no address of the bus", r.Node)
	}
	return nil
}

// Follow returns the node's membership with the CAs and the JWT that the server wants the node to use. The argument
// `proved` is the digest of the CA that signed the server's certificate on this connection. The server's message
// must contain this CA. If this CA were missing, the node would refuse this server on its next connection.
func (r EnrolResponse) Follow(should wire.ToPin, proved tutti.Digest) (EnrolResponse, error) {
	if should.CA == "" {
		return r, nil
	}
	cas, err := parseCAs([]byte(should.CA))
	if err != nil {
		return r, tutti.Wrap(tutti.CodeInvalid, err, "CA certificates")
	}
	if slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return !ca.IsCA }) {
		return r, tutti.Errorf(tutti.CodeInvalid, "CA certificates: one of them is not the certificate of a CA")
	}
	if !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return pinOf(ca) == proved }) {
		return r, tutti.Errorf(tutti.CodeRefused, "the server's list of CAs lacks the CA %s, which signed the server's own certificate", proved)
	}
	next := r
	next.CA = should.CA
	if should.JWT == "" {
		return next, nil
	}
	before, err := jwt.DecodeUserClaims(r.JWT)
	if err != nil {
		return r, tutti.Wrap(tutti.CodeInvalid, err, "the JWT of this node")
	}
	after, err := jwt.DecodeUserClaims(should.JWT)
	if err != nil || after.Subject != before.Subject {
		return r, tutti.Errorf(tutti.CodeInvalid, "the JWT is not for this node")
	}
	next.JWT = should.JWT
	return next, nil
}

// Trusts returns the code keys that the node trusts.
func (r *EnrolResponse) Trusts() (Trust, error) {
	fleet, err := FleetOf(*r)
	if err != nil {
		return Trust{}, err
	}
	return NewTrust(fleet, r.CodeKey, r.Trust)
}

// Write stores the response in dir, which must exist.
func (r *EnrolResponse) Write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode membership: %w", err)
	}
	return writeFile(dir, fileMembership, raw)
}

// LoadMembership reads the response that Write stored. LoadMembership returns the same errors as Load.
func LoadMembership(dir string) (EnrolResponse, error) {
	var r EnrolResponse
	raw, err := readFile(dir, fileMembership)
	if err != nil {
		return r, err
	}
	if json.Unmarshal(raw, &r) != nil || r.Validate() != nil {
		return r, corrupt(dir, fileMembership)
	}
	return r, nil
}
