// Package attack has no code but tests. Each test plays an attacker. The attacker has no
// credentials, or credentials of another node or fleet, or the credentials of a compromised node.
// The tests attack the real program on loopback. The server must refuse the attack and record it in
// the audit log. The fleet must stay unchanged: a job on two nodes succeeds before, during and
// after the attack.
package attack
