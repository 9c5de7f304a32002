package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
)

// operatorsKey returns the public key by which the operator of a directory signs actions; it is made if there is none.
func operatorsKey(dir string) (tutti.OperatorKey, error) {
	bundle, err := identity.LoadOperator(dir)
	if err != nil {
		return tutti.OperatorKey{}, tutti.Wrap("", err, "an operator's directory is needed to sign actions")
	}
	key, err := identity.MakeActionKey(dir)
	if err != nil {
		return tutti.OperatorKey{}, err
	}
	return tutti.OperatorKey{Operator: bundle.Name, Key: identity.EncodeCodePublicKey(publicOf(key))}, nil
}

// trustOperator signs the next list of operators who sign actions: one is added, or left out.
func trustOperator(ctx context.Context, server cli.Server, c cli.Connection, in cli.TrustOperator) (cli.OperatorsTrusted, error) {
	s, err := newSigner(ctx, server, c.OperatorDir)
	if err == nil {
		err = s.maySign()
	}
	if err != nil {
		return cli.OperatorsTrusted{}, err
	}
	list := tutti.TrustedOperators{Fleet: s.fleet}
	if s.said.Operators != nil {
		if list, err = s.known.Operators(*s.said.Operators); err != nil {
			return cli.OperatorsTrusted{}, tutti.Wrap("", err, "the list that the server shows")
		}
	}
	there := slices.IndexFunc(list.Operators, func(o tutti.OperatorKey) bool { return o.Operator == in.Name })
	if there >= 0 {
		list.Operators = slices.Delete(list.Operators, there, there+1)
	}
	switch {
	case in.Remove && there < 0:
		return cli.OperatorsTrusted{}, tutti.Errorf(tutti.CodeNotFound, "operator %s signs no actions", in.Name)
	case !in.Remove:
		if _, err := identity.ParseCodePublicKey(in.Key); err != nil {
			return cli.OperatorsTrusted{}, tutti.Wrap("", err, "the key of %s: what `tutti operator key` prints there", in.Name)
		}
		list.Operators = append(list.Operators, tutti.OperatorKey{Operator: in.Name, Key: in.Key})
	}
	list.Counter++
	st, err := identity.State(tutti.StatementOperators, list, s.keys...)
	if err == nil {
		err = list.Validate()
	}
	if err == nil {
		err = server.TrustOperators(ctx, st)
	}
	out := cli.OperatorsTrusted{Operators: []string{}}
	for _, o := range list.Operators {
		out.Operators = append(out.Operators, o.Operator)
	}
	return out, err
}

// actionLife is for how long an action is good after nodes were waited for: clocks differ.
const actionLife = 5 * time.Minute

// signAction signs a change for some nodes; nothing where operators sign no actions.
func signAction(ctx context.Context, server cli.Server, c cli.Connection, in tutti.AskNodes, nodes []tutti.NodeName) ([]tutti.Statement, error) {
	said, err := server.Signing(ctx)
	if tutti.CodeOf(err) == tutti.CodeNotFound { // a server of release 0.2.0 or before
		return nil, nil
	}
	if err != nil || said.Operators == nil {
		return nil, err
	}
	bundle, err := identity.LoadOperator(c.OperatorDir)
	if err != nil {
		return nil, tutti.Wrap("", err, "operators sign what nodes are to change in this fleet, and that takes an operator's directory")
	}
	key, err := identity.ActionKey(c.OperatorDir)
	if err != nil {
		return nil, err
	}
	if key == nil {
		return nil, tutti.Errorf(tutti.CodeRefused, "operators sign what nodes are to change in this fleet, and there is no key for that in %s: make it with `tutti operator key`, and give it to somebody with the code-signing key, for `tutti operator trust %s`", c.OperatorDir, bundle.Name)
	}
	fleet, err := identity.KeepFleet(c.OperatorDir, bundle.Pin())
	if err != nil {
		return nil, err
	}
	var out []tutti.Statement
	for part := range slices.Chunk(nodes, tutti.MaxActionNodes) {
		body := tutti.SignedAction{
			Fleet: fleet, Operator: bundle.Name, Action: in.Action, Nodes: part, Message: in.Message, Force: in.Force,
			Until: time.Now().Add(in.Wait + actionLife).UTC().Truncate(time.Second), Nonce: rand.Text(),
		}
		st, err := identity.State(tutti.StatementAction, body, key)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// operatorsText names operators with their keys.
func operatorsText(of []tutti.OperatorKey) string {
	var out []string
	for _, o := range of {
		name := o.Operator + " (no key)"
		if key, err := identity.ParseCodePublicKey(o.Key); err == nil {
			name = fmt.Sprintf("%s (%.19s)", o.Operator, identity.KeyID(key))
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return "nobody"
	}
	return strings.Join(out, ", ")
}
