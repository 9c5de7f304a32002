package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	"github.com/tutti-project/tutti"
)

// fileActionKey is the name of the action key's file in an operator's directory. The action key is not the
// certificate's key, because the certificate's key changes with each renewal. Nodes learn of a new key only from
// the server, and should not have to trust the server.
const fileActionKey = "action.key"

// ActionKey returns the key with which an operator signs actions. ActionKey returns nil if the directory has no such
// key.
func ActionKey(dir string) (ed25519.PrivateKey, error) { return loadKeyIn(dir, fileActionKey) }

// MakeActionKey makes the action key if it does not exist.
func MakeActionKey(dir string) (ed25519.PrivateKey, error) {
	key, err := ActionKey(dir)
	if err != nil || key != nil {
		return key, err
	}
	if _, key, err = ed25519.GenerateKey(rand.Reader); err != nil {
		return nil, fmt.Errorf("make the key that signs actions: %w", err)
	}
	return key, writeFile(dir, fileActionKey, encodeCodeKey(key))
}

// Operators checks the signature and the fleet of a list of operators who sign actions. Operators returns
// CodeRefused if no trusted code key signed the list, or if the list is for another fleet.
func (t Trust) Operators(in tutti.Statement) (tutti.TrustedOperators, error) {
	list, err := read[tutti.TrustedOperators](in, tutti.StatementOperators)
	switch {
	case err != nil:
		return list, err
	case !t.signed(in):
		return list, tutti.Errorf(tutti.CodeRefused, "the list of operators who sign actions: not signed with a key of this fleet's operators")
	case list.Fleet != t.Fleet:
		return list, tutti.Errorf(tutti.CodeRefused, "the list of operators who sign actions: signed for the fleet %.19s, but this fleet is %.19s", list.Fleet, t.Fleet)
	}
	for _, o := range list.Operators {
		if _, err := ParseCodePublicKey(o.Key); err != nil {
			return list, tutti.Wrap(tutti.CodeInvalid, err, "the list of operators who sign actions: %s", o.Operator)
		}
	}
	return list, nil
}

// ReadOperators returns the content of a list of operators. ReadOperators does not check the signature of the list.
func ReadOperators(in tutti.Statement) (tutti.TrustedOperators, error) {
	return read[tutti.TrustedOperators](in, tutti.StatementOperators)
}

// Action checks that an operator on the list has signed an action.
func Action(list tutti.TrustedOperators, in tutti.Statement) (tutti.SignedAction, error) {
	said, err := read[tutti.SignedAction](in, tutti.StatementAction)
	if err != nil {
		return said, err
	}
	if said.Fleet != list.Fleet {
		return said, tutti.Errorf(tutti.CodeRefused, "the action %s was signed for the fleet %.19s, but this fleet is %.19s", said.Action, said.Fleet, list.Fleet)
	}
	for _, o := range list.Operators {
		if o.Operator != said.Operator {
			continue
		}
		if key, err := ParseCodePublicKey(o.Key); err == nil && signedBy(in, key) {
			return said, nil
		}
	}
	return said, tutti.Errorf(tutti.CodeRefused, "the action %s is not signed by an operator who may sign actions", said.Action)
}
