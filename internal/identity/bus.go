package identity

import (
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
)

// BusTrust is what an embedded bus must know: its operator, its system account
// and the JWTs of all accounts by public key.
type BusTrust struct {
	Operator string
	System   string
	Accounts map[string]string
}

// BusUser is a JWT and the seed that proves its possession.
type BusUser struct {
	JWT  string
	Seed []byte
}

// BusCreds are the server's own connections: to the account of the log, to that
// of the nodes, and to that in which the bus says who comes and goes.
type BusCreds struct {
	Log, Nodes, System BusUser
}

// MaxPayload is the largest message of a node, headers included. Longer
// content goes in chunks.
const MaxPayload = 256 << 10

// maxNodeSubs: doorbells and inbox, and some room for the next release.
const maxNodeSubs = 16

// Trust returns what the embedded bus must be told at its start.
func (a *Authority) Trust() (BusTrust, error) {
	operator, err := public(a.operator)
	if err != nil {
		return BusTrust{}, err
	}
	claims := jwt.NewOperatorClaims(operator)
	claims.Name = "tutti"
	t := BusTrust{Accounts: map[string]string{}}
	if t.System, err = public(a.sys); err != nil {
		return t, err
	}
	claims.SystemAccount = t.System
	if t.Operator, err = claims.Encode(a.operator); err != nil {
		return t, fmt.Errorf("sign the bus operator: %w", err)
	}
	log, err := public(a.log)
	if err != nil {
		return t, err
	}
	nodes, err := public(a.nodes)
	if err != nil {
		return t, err
	}
	if t.Accounts[t.System], err = a.signAccount(jwt.NewAccountClaims(t.System), "SYS"); err != nil {
		return t, err
	}
	logClaims := jwt.NewAccountClaims(log)
	logClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1, MaxAckPending: -1}
	if t.Accounts[log], err = a.signAccount(logClaims, "LOG"); err != nil {
		return t, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Accounts[nodes] = a.nodesJWT
	return t, nil
}

// ServerCreds makes the credentials of the server's own connections, new ones
// at each call. In the account of the nodes the server may only listen to
// nodes, answer them and ring.
func (a *Authority) ServerCreds() (BusCreds, error) {
	log, err := a.user(a.log, nil)
	if err != nil {
		return BusCreds{}, err
	}
	nodes, err := a.user(a.nodes, func(u *jwt.UserClaims) {
		u.Sub.Allow.Add("n.>")
		u.Pub.Allow.Add("i.>", "d.>")
	})
	if err != nil {
		return BusCreds{}, err
	}
	system, err := a.user(a.sys, func(u *jwt.UserClaims) {
		u.Sub.Allow.Add("$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR")
		u.Pub.Deny.Add(">")
	})
	return BusCreds{Log: log, Nodes: nodes, System: system}, err
}

func (a *Authority) user(account nkeys.KeyPair, limit func(*jwt.UserClaims)) (BusUser, error) {
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
	text, err := claims.Encode(account)
	if err != nil {
		return BusUser{}, fmt.Errorf("sign the server's bus user: %w", err)
	}
	return BusUser{JWT: text, Seed: seed}, nil
}

// NodeJWT admits the holder of key to the bus, for Lives.Node. All rights are by key; the name
// is a label for people who look at the bus. CodeUnavailable in the second in
// which the key was revoked.
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
	text, err := claims.Encode(a.nodes)
	if err != nil {
		return "", fmt.Errorf("sign the identity of node %s: %w", name, err)
	}
	return text, nil
}

// JWTLife returns from when and until when a node's JWT is good.
func JWTLife(text string) (from, until time.Time, err error) {
	claims, err := jwt.DecodeUserClaims(text)
	if err != nil {
		return from, until, tutti.Wrap(tutti.CodeInvalid, err, "the JWT of this node")
	}
	if claims.Expires == 0 { // of an old release
		return time.Unix(claims.IssuedAt, 0), time.Unix(claims.IssuedAt, 0).Add(nodeLife), nil
	}
	return time.Unix(claims.IssuedAt, 0), time.Unix(claims.Expires, 0), nil
}

// Revoke makes every JWT of key worthless that was issued up to now, durably,
// and returns the account JWT that a running bus must be given. A JWT issued
// in a later second is valid again.
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
	text, err := a.signAccount(claims, "NODES")
	if err != nil {
		return "", err
	}
	if err := writeFile(a.dir, fileNodesJWT, []byte(text)); err != nil {
		return "", err
	}
	a.nodesJWT = text
	return text, nil
}

// revokedNow reports whether a JWT issued now would fall under a revocation:
// the bus compares whole seconds.
func (a *Authority) revokedNow(key tutti.NodeKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	claims, err := jwt.DecodeAccountClaims(a.nodesJWT)
	return err == nil && claims.Revocations.IsRevoked(string(key), time.Now())
}

func (a *Authority) signAccount(claims *jwt.AccountClaims, name string) (string, error) {
	claims.Name = name
	claims.Limits.DisallowBearer = true
	text, err := claims.Encode(a.operator)
	if err != nil {
		return "", fmt.Errorf("sign the bus account %s: %w", name, err)
	}
	return text, nil
}

func (a *Authority) makeBusKeys() error {
	for _, k := range []struct {
		file   string
		create func() (nkeys.KeyPair, error)
		pair   *nkeys.KeyPair
	}{
		{fileOperator, nkeys.CreateOperator, &a.operator},
		{fileSys, nkeys.CreateAccount, &a.sys},
		{fileLog, nkeys.CreateAccount, &a.log},
		{fileNodes, nkeys.CreateAccount, &a.nodes},
	} {
		kp, err := k.create()
		if err != nil {
			return fmt.Errorf("make a bus key: %w", err)
		}
		seed, err := kp.Seed()
		if err != nil {
			return fmt.Errorf("make a bus key: %w", err)
		}
		if err := writeFile(a.dir, k.file, seed); err != nil {
			return err
		}
		*k.pair = kp
	}
	nodes, err := public(a.nodes)
	if err != nil {
		return err
	}
	if a.nodesJWT, err = a.signAccount(jwt.NewAccountClaims(nodes), "NODES"); err != nil {
		return err
	}
	return writeFile(a.dir, fileNodesJWT, []byte(a.nodesJWT))
}

func (a *Authority) loadBusKeys() error {
	for _, k := range []struct {
		file string
		pair *nkeys.KeyPair
		kind *regexp.Regexp
	}{
		{fileOperator, &a.operator, operatorSeedRE}, {fileSys, &a.sys, accountSeedRE},
		{fileLog, &a.log, accountSeedRE}, {fileNodes, &a.nodes, accountSeedRE},
	} {
		seed, err := readFile(a.dir, k.file)
		if err != nil {
			return err
		}
		if *k.pair, err = nkeys.FromSeed(seed); err != nil || !k.kind.Match(seed) {
			return corrupt(a.dir, k.file)
		}
	}
	text, err := readFile(a.dir, fileNodesJWT)
	if err != nil {
		return err
	}
	claims, err := jwt.DecodeAccountClaims(string(text))
	if err != nil {
		return corrupt(a.dir, fileNodesJWT)
	}
	nodes, err := public(a.nodes)
	if err != nil {
		return err
	}
	operator, err := public(a.operator)
	if err != nil {
		return err
	}
	if claims.Subject != nodes || claims.Issuer != operator {
		return corrupt(a.dir, fileNodesJWT)
	}
	a.nodesJWT = string(text)
	return nil
}

var (
	operatorSeedRE = regexp.MustCompile(`^SO[A-Z2-7]{56}$`)
	accountSeedRE  = regexp.MustCompile(`^SA[A-Z2-7]{56}$`)
)

func public(kp nkeys.KeyPair) (string, error) {
	key, err := kp.PublicKey()
	if err != nil {
		return "", fmt.Errorf("public part of a bus key: %w", err)
	}
	return key, nil
}
