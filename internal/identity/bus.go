package identity

import (
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
)

// BusTrust is the configuration of an embedded bus: its operator, its system account, and the JWTs of all accounts by
// public key.
type BusTrust struct {
	Operator string
	System   string
	Accounts map[string]string
}

// BusUser is a JWT with the seed that proves that the holder may use the JWT.
type BusUser struct {
	JWT  string
	Seed []byte
}

// BusCreds are the credentials of the server's own connections. One connection is to the account of the log, one to
// the account of the nodes, and one to the system account. In the system account the bus reports which clients
// connect and disconnect.
type BusCreds struct {
	Log, Nodes, System BusUser
}

// MaxPayload is the largest message of a node, headers included. Larger content is sent in chunks.
const MaxPayload = 256 << 10

// maxNodeSubs limits the subscriptions of a node. A node needs them for doorbells and its inbox.
// The rest is room for later releases.
const maxNodeSubs = 16

// Trust returns the configuration that the embedded bus needs at its start. An account accepts only users whose JWTs
// were signed by a key in the account's list (strict signing keys). The name of an account is the public key of its
// first signing key. After a rotation, the account keeps its name, but this key is no longer in the list. So this
// key cannot sign users any more.
func (a *Authority) Trust() (BusTrust, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := BusTrust{System: a.names.Sys, Accounts: map[string]string{a.names.Nodes: a.nodesJWT}}
	signer, err := public(a.present.operator)
	if err != nil {
		return t, err
	}
	// Each start makes a new bus operator, because nothing depends on this operator.
	self, err := nkeys.CreateOperator()
	if err != nil {
		return t, fmt.Errorf("make a bus operator: %w", err)
	}
	subject, err := public(self)
	if err != nil {
		return t, err
	}
	claims := jwt.NewOperatorClaims(subject)
	claims.Name, claims.SystemAccount, claims.StrictSigningKeyUsage = "tutti", a.names.Sys, true
	claims.SigningKeys.Add(signer)
	if t.Operator, err = claims.Encode(self); err != nil {
		return t, fmt.Errorf("sign the bus operator: %w", err)
	}
	if t.Accounts[a.names.Sys], err = signAccount(a.present, jwt.NewAccountClaims(a.names.Sys), "SYS", a.present.sys); err != nil {
		return t, err
	}
	logClaims := jwt.NewAccountClaims(a.names.Log)
	logClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1, MaxAckPending: -1}
	t.Accounts[a.names.Log], err = signAccount(a.present, logClaims, "LOG", a.present.log)
	return t, err
}

// ServerCreds makes new credentials for the server's own connections at each call. In the account of the nodes, the
// server may only receive messages from nodes, answer them, and ring doorbells.
func (a *Authority) ServerCreds() (BusCreds, error) {
	a.mu.Lock()
	s, names := a.present, a.names
	a.mu.Unlock()
	log, err := newUser(s.log, names.Log, nil)
	if err != nil {
		return BusCreds{}, err
	}
	nodes, err := newUser(s.nodes, names.Nodes, func(u *jwt.UserClaims) {
		u.Sub.Allow.Add("n.>")
		u.Pub.Allow.Add("i.>", "d.>")
	})
	if err != nil {
		return BusCreds{}, err
	}
	system, err := newUser(s.sys, names.Sys, func(u *jwt.UserClaims) {
		u.Sub.Allow.Add("$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR")
		u.Pub.Deny.Add(">")
	})
	return BusCreds{Log: log, Nodes: nodes, System: system}, err
}

func newUser(signer nkeys.KeyPair, account string, limit func(*jwt.UserClaims)) (BusUser, error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return BusUser{}, fmt.Errorf("make a bus user: %w", err)
	}
	key, err := public(kp)
	if err != nil {
		return BusUser{}, err
	}
	seed, err := kp.Seed()
	if err != nil {
		return BusUser{}, fmt.Errorf("make a bus user: %w", err)
	}
	claims := jwt.NewUserClaims(key)
	claims.Name = "server"
	if limit != nil {
		limit(claims)
	}
	text, err := signUser(claims, signer, account)
	if err != nil {
		return BusUser{}, fmt.Errorf("sign the server's bus user: %w", err)
	}
	return BusUser{JWT: text, Seed: seed}, nil
}

// signUser signs a user of an account.
func signUser(claims *jwt.UserClaims, signer nkeys.KeyPair, account string) (string, error) {
	key, err := public(signer)
	if err != nil {
		return "", err
	}
	if key != account {
		claims.IssuerAccount = account
	}
	return claims.Encode(signer)
}

// NodeJWT returns a JWT that admits the owner of this key to the bus for the time Lives.Node. All rights of a node
// depend on its key. The name is only a label for people who look at the bus. NodeJWT returns CodeUnavailable if the
// key was revoked within the same second.
func (a *Authority) NodeJWT(key tutti.NodeKey, name tutti.NodeName) (string, error) {
	if err := key.Validate(); err != nil {
		return "", err
	}
	if !nkeys.IsValidPublicUserKey(string(key)) {
		return "", tutti.Errorf(tutti.CodeInvalid, "node key %q: not a public nkey", string(key))
	}
	if a.revokedNow(key) {
		return "", tutti.Errorf(tutti.CodeUnavailable, "node %s: its key was revoked in this second; try again in the next", name)
	}
	claims := jwt.NewUserClaims(string(key))
	claims.Name = string(name)
	claims.Expires = time.Now().Add(a.Lives.node()).Unix()
	claims.Pub.Allow.Add("n." + string(key) + ".>")
	claims.Sub.Allow.Add("d."+string(key)+".>", "i."+string(key)+".>")
	claims.Limits.Payload = MaxPayload
	claims.Subs = maxNodeSubs
	claims.AllowedConnectionTypes.Add(jwt.ConnectionTypeStandard)
	a.mu.Lock()
	signer, account := a.issuing().nodes, a.names.Nodes
	a.mu.Unlock()
	text, err := signUser(claims, signer, account)
	if err != nil {
		return "", fmt.Errorf("sign the identity of node %s: %w", name, err)
	}
	return text, nil
}

// JWTLife returns the beginning and the end of the validity of a node's JWT.
func JWTLife(text string) (from, until time.Time, err error) {
	claims, err := jwt.DecodeUserClaims(text)
	if err != nil {
		return from, until, tutti.Wrap(tutti.CodeInvalid, err, "the JWT of this node")
	}
	if claims.Expires == 0 { // a JWT from an old release has no end
		return time.Unix(claims.IssuedAt, 0), time.Unix(claims.IssuedAt, 0).Add(nodeLife), nil
	}
	return time.Unix(claims.IssuedAt, 0), time.Unix(claims.Expires, 0), nil
}

// JWTIssuer returns the key that signed a node's JWT.
func JWTIssuer(text string) (string, error) {
	claims, err := jwt.DecodeUserClaims(text)
	if err != nil {
		return "", tutti.Wrap(tutti.CodeInvalid, err, "the JWT of this node")
	}
	return claims.Issuer, nil
}

// Revoke permanently invalidates all JWTs of this key that were issued up to now. Revoke returns the account's new
// JWT. The caller must pass this JWT to the running bus. A JWT that is issued in a later second is valid.
func (a *Authority) Revoke(key tutti.NodeKey) (string, error) {
	if err := key.Validate(); err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	claims, err := jwt.DecodeAccountClaims(a.nodesJWT)
	if err != nil {
		return "", fmt.Errorf("decode the account of the nodes: %w", err)
	}
	claims.Revoke(string(key))
	text, err := signAccount(a.present, claims, "NODES", a.nodeSigners()...)
	if err != nil {
		return "", err
	}
	if err := writeFile(a.dir, fileNodesJWT, []byte(text)); err != nil {
		return "", err
	}
	a.nodesJWT = text
	return text, nil
}

// NodesAccount returns the JWT of the nodes' account. The caller must pass this JWT to the running bus after each
// step of a rotation.
func (a *Authority) NodesAccount() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodesJWT
}

// nodeSigners returns the keys whose JWTs admit nodes. The caller holds a.mu.
func (a *Authority) nodeSigners() []nkeys.KeyPair {
	var out []nkeys.KeyPair
	for _, s := range a.trusted() {
		out = append(out, s.nodes)
	}
	return out
}

// signNodes signs the nodes' account again after the key sets have changed. The caller holds a.mu.
func (a *Authority) signNodes() error {
	claims, err := jwt.DecodeAccountClaims(a.nodesJWT)
	if err != nil {
		return fmt.Errorf("decode the account of the nodes: %w", err)
	}
	a.nodesJWT, err = signAccount(a.present, claims, "NODES", a.nodeSigners()...)
	return err
}

// revokedNow reports whether the bus would refuse a new JWT of this key. The bus refuses the JWT if the
// key was revoked in the present second, because the bus compares whole seconds.
func (a *Authority) revokedNow(key tutti.NodeKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	claims, err := jwt.DecodeAccountClaims(a.nodesJWT)
	return err == nil && claims.Revocations.IsRevoked(string(key), time.Now())
}

// signAccount signs an account. The account accepts only users whose JWTs were signed by the given signers.
func signAccount(by *keySet, claims *jwt.AccountClaims, name string, signers ...nkeys.KeyPair) (string, error) {
	claims.Name = name
	claims.Limits.DisallowBearer = true
	claims.SigningKeys = jwt.SigningKeys{}
	for _, kp := range signers {
		key, err := public(kp)
		if err != nil {
			return "", err
		}
		claims.SigningKeys.Add(key)
	}
	text, err := claims.Encode(by.operator)
	if err != nil {
		return "", fmt.Errorf("sign the bus account %s: %w", name, err)
	}
	return text, nil
}

// loadNodes reads the nodes' account. It takes only the revocations from the account. The signing keys come from the
// key sets.
func (a *Authority) loadNodes() error {
	text, err := readFile(a.dir, fileNodesJWT)
	if err != nil {
		return err
	}
	claims, err := jwt.DecodeAccountClaims(string(text))
	if err != nil {
		return corrupt(a.dir, fileNodesJWT)
	}
	operator, err := public(a.present.operator)
	if err != nil {
		return err
	}
	if claims.Subject != a.names.Nodes || claims.Issuer != operator {
		return corrupt(a.dir, fileNodesJWT)
	}
	a.nodesJWT = string(text)
	return a.signNodes()
}

func public(kp nkeys.KeyPair) (string, error) {
	key, err := kp.PublicKey()
	if err != nil {
		return "", fmt.Errorf("public part of a bus key: %w", err)
	}
	return key, nil
}
