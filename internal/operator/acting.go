package operator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
)

// OperatorsKey returns the public key with which an operator signs actions. If the operator's directory has no key,
// OperatorsKey makes one.
func OperatorsKey(dir string) (tutti.OperatorKey, error) {
	bundle, err := identity.LoadOperator(dir)
	if err != nil {
		return tutti.OperatorKey{}, tutti.Wrap("", err, "an operator's directory is needed to sign actions")
	}
	key, err := identity.MakeActionKey(dir)
	if err != nil {
		return tutti.OperatorKey{}, err
	}
	return tutti.OperatorKey{Operator: bundle.Name, Key: identity.EncodeCodePublicKey(PublicOf(key))}, nil
}

// TrustOperator signs the next list of operators who sign actions. TrustOperator adds or removes
// one operator.
func TrustOperator(ctx context.Context, server cli.Server, c cli.Connection, in cli.TrustOperator) (cli.OperatorsTrusted, error) {
	s, err := NewSigner(ctx, server, c.OperatorDir)
	if err == nil {
		err = s.maySign()
	}
	if err != nil {
		return cli.OperatorsTrusted{}, err
	}
	last, err := s.lastOperators()
	if err != nil {
		return cli.OperatorsTrusted{}, err
	}
	list := last.list
	list.Operators = slices.Clone(list.Operators)
	there := slices.IndexFunc(list.Operators, func(o tutti.OperatorKey) bool { return o.Operator == in.Name })
	if there >= 0 {
		list.Operators = slices.Delete(list.Operators, there, there+1)
	}
	switch {
	case in.Remove && there < 0:
		return cli.OperatorsTrusted{}, tutti.Errorf(tutti.CodeNotFound, "operator %s signs no actions", in.Name)
	case !in.Remove:
		if _, err := identity.ParseCodePublicKey(in.Key); err != nil {
			return cli.OperatorsTrusted{}, tutti.Wrap("", err, "the key of %s must be the output of their `tutti operator key`", in.Name)
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
	if err == nil {
		err = WriteOperators(s.dir, st)
	}
	out := cli.OperatorsTrusted{Operators: []string{}, Note: last.note}
	for _, o := range list.Operators {
		out.Operators = append(out.Operators, o.Operator)
	}
	out.Added = without(list.Operators, last.before)
	out.Left = without(last.before, list.Operators)
	return out, err
}

// The function `without` returns those operators of the list `of`, with their keys, that are not in the
// list `other`. An operator with another key counts as another operator.
func without(of, other []tutti.OperatorKey) []string {
	var out []string
	for _, o := range of {
		if !slices.Contains(other, o) {
			out = append(out, operatorsText([]tutti.OperatorKey{o}))
		}
	}
	return out
}

// OperatorsFile is a file in an operator's directory. OperatorsFile contains the last known list of
// operators who sign actions. With this list, an operator notices a server that shows an earlier list.
// An earlier list could contain an operator who was removed since.
const OperatorsFile = "operators.json"

// WriteOperators stores the list of operators who sign actions in an operator's directory.
func WriteOperators(dir string, list tutti.Statement) error {
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, OperatorsFile), append(raw, '\n'), 0o600)
}

// readOperators returns the stored list. The function returns nil if the directory has no
// list.
func readOperators(dir string) (*tutti.Statement, error) {
	file := filepath.Join(dir, OperatorsFile)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out tutti.Statement
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return &out, tutti.Wrap(tutti.CodeDamaged, err, "%s", file)
}

// lastList is the list of operators on which the next list is based.
type lastList struct {
	list   tutti.TrustedOperators
	kept   *tutti.Statement    // the directory's list if the server shows an earlier list or a bad one; otherwise nil
	before []tutti.OperatorKey // the directory's operators; if it has no list, the operators of the server's list
	note   string              // the problem of the server's list
}

// Both the server and the directory have a list. lastOperators returns the later one.
func (s *Signer) lastOperators() (lastList, error) {
	out := lastList{list: tutti.TrustedOperators{Fleet: s.fleet}}
	kept, err := readOperators(s.dir)
	if err != nil {
		return out, err
	}
	shown := out.list
	if s.Said.Operators != nil {
		if shown, err = s.Known.Operators(*s.Said.Operators); err != nil && kept == nil {
			return out, tutti.Wrap("", err, "the list that the server shows")
		}
	}
	if kept == nil {
		out.list, out.before = shown, shown.Operators
		return out, nil
	}
	had, bad := identity.ReadOperators(*kept)
	if bad != nil {
		return out, tutti.Wrap(tutti.CodeDamaged, bad, "%s", filepath.Join(s.dir, OperatorsFile))
	}
	out.list, out.before = shown, had.Operators
	switch {
	case err != nil:
		out.list, out.kept = had, kept
		out.note = fmt.Sprintf("The list that the server shows is not valid (%v). The new list is based on list %d, which %s has.", err, had.Counter, s.dir)
	case shown.Counter < had.Counter:
		out.list, out.kept = had, kept
		out.note = fmt.Sprintf("The server shows list %d, but %s has list %d: the server was put back to an earlier state, or it lies. The new list is based on list %d.", shown.Counter, s.dir, had.Counter, had.Counter)
	case shown.Counter == had.Counter && !bytes.Equal(kept.Body, s.Said.Operators.Body):
		return out, tutti.Errorf(tutti.CodeRefused, "list %d of operators on the server (%s) differs from the list in %s (%s): nothing is signed; ask who else signs lists, and remove %s from this directory if the server's list is right",
			shown.Counter, operatorsText(shown.Operators), s.dir, operatorsText(had.Operators), OperatorsFile)
	case tutti.Leaps(had.Counter, shown.Counter):
		return out, tutti.Errorf(tutti.CodeRefused, "the server shows list %d of operators, but the last list in %s is %d: nobody signs so many lists; if this was not you, rotate the key (tutti rotate code-key)", shown.Counter, s.dir, had.Counter)
	}
	return out, nil
}

// actionLife is how long an action stays valid after the command has stopped waiting for nodes.
// This extra time is needed because the clocks of operators and nodes differ.
const actionLife = 5 * time.Minute

// SignAction signs a change for some nodes. SignAction returns nil if operators do not sign actions in
// this fleet.
func SignAction(ctx context.Context, server cli.Server, c cli.Connection, in api.NodesQuestion, nodes []tutti.NodeName) ([]tutti.Statement, error) {
	said, err := server.Signing(ctx)
	if tutti.CodeOf(err) == tutti.CodeNotFound { // a server of release 0.2.0 or earlier
		return nil, nil
	}
	if err != nil || said.Operators == nil {
		return nil, err
	}
	bundle, err := identity.LoadOperator(c.OperatorDir)
	if err != nil {
		return nil, tutti.Wrap("", err, "operators sign actions in this fleet, so this command needs an operator's directory")
	}
	key, err := identity.ActionKey(c.OperatorDir)
	if err != nil {
		return nil, err
	}
	if key == nil {
		return nil, tutti.Errorf(tutti.CodeRefused, "operators sign actions in this fleet, but there is no key for this in %s: make the key with `tutti operator key`, and give the output to somebody with the code-signing key, for `tutti operator trust %s`", c.OperatorDir, bundle.Name)
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

// operatorsText returns the names of operators with their keys.
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
