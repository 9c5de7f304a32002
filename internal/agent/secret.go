package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	sealing "github.com/tutti-project/tutti/internal/seal" // the import has another name, because this package has a function `seal` for the agent's own files
	"github.com/tutti-project/tutti/wire"
)

// checkSealed refuses a secret that does not have the named digest or does not fit the question.
func checkSealed(v tutti.SealedValue, q tutti.Query, node tutti.NodeName, digest tutti.Digest) error {
	paths := []string{q.Key}
	if q.Kind == tutti.QueryHiera {
		paths = data.HieraPaths(node, q.Key)
	}
	switch {
	case !slices.Contains(paths, v.Key):
		return tutti.Errorf(tutti.CodeInternal, "the server answers %s with the secret %q", q, v.Key)
	case v.Digest() != digest:
		return tutti.Errorf(tutti.CodeInternal, "the server's secret %q does not have the digest %s", v.Key, digest)
	}
	return nil
}

// The method `open` returns a value in clear for Puppet, and whether it was sealed. The agent opens
// a value just before Puppet gets it, because the agent stores only sealed values.
func (a *Agent) open(value json.RawMessage, opens bool) (clear json.RawMessage, secret bool, err error) {
	v, is := tutti.ParseSealed(value)
	switch {
	case !is:
		return value, false, nil
	case !opens:
		return nil, true, tutti.Errorf(tutti.CodeRefused, "%q is a secret, and the module tutti of this code does not know secrets: bring it up to date", v.Key)
	case a.opts.Boxes == nil:
		return nil, true, tutti.Errorf(tutti.CodeRefused, "%q is a secret, and this node has no key to open it", v.Key)
	}
	for _, key := range a.opts.Boxes.Keys() {
		var failed error
		if clear, failed = sealing.OpenNode(v, key); failed == nil {
			return clear, true, nil
		}
		err = cmp.Or(err, failed) // return the error of the present key
	}
	return nil, true, err
}

// valueResponse returns the response that the module gets to a question for a value.
func (a *Agent) valueResponse(answer wire.Answer, opens bool) (response, error) {
	out := response{"found": answer.Found}
	if answer.Awaits != "" {
		out["awaits"] = answer.Awaits
	}
	if !answer.Found {
		return out, nil
	}
	clear, secret, err := a.open(answer.Value, opens)
	if err != nil {
		return nil, err
	}
	out["value"] = clear
	if secret {
		out["sensitive"] = true
	}
	return out, nil
}

// hieraResponse returns the module's response with the hiera level.
func (a *Agent) hieraResponse(level wire.HieraData, opens bool) (response, error) {
	values, sensitive, closed := make(map[string]json.RawMessage, len(level.Data)), []string{}, map[string]string{}
	for key, value := range level.Data {
		clear, secret, err := a.open(value, opens)
		if err != nil && !opens {
			return nil, err
		}
		if err != nil { // a run that looks up this key gets the error; other keys still work
			closed[key] = err.Error()
			continue
		}
		if values[key] = clear; secret {
			sensitive = append(sensitive, key)
		}
	}
	slices.Sort(sensitive)
	out := response{"data": values}
	if len(sensitive) > 0 {
		out["sensitive"] = sensitive
	}
	if len(level.Awaits) > 0 {
		out["awaits"] = level.Awaits
	}
	if len(closed) > 0 {
		out["closed"] = closed
	}
	return out, nil
}

// publishedSecret checks a tutti_value whose value is Sensitive. The method reports whether the value
// is published for all its present recipients. The agent stores only the sealed value.
func (s *socket) publishedSecret(ctx context.Context, req request) (response, error) {
	to, err := s.recipients(ctx, req)
	if away(err) {
		return response{"found": false}, nil // the run gets the error later, when it publishes the value
	}
	if err != nil {
		return nil, err
	}
	current, err := s.ownSecret(ctx, req.Key)
	if err != nil {
		return nil, err
	}
	same := current != nil && sameValue(current, req.Value)
	if same && len(missing(to, to.Current)) == 0 && slices.Equal(to.Current.For, req.For) {
		return response{"found": true, "value": req.Value}, nil
	}
	return response{"found": to.Current != nil, "value": nil, "outdated": true}, nil
}

func sameValue(a, b json.RawMessage) bool {
	x, errX := data.Canonical(a)
	y, errY := data.Canonical(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// The function `missing` returns the recipients that have no piece of the secret yet.
func missing(to wire.NodeRecipients, current *wire.SealedTo) []tutti.Recipient {
	var out []tutti.Recipient
	for _, r := range to.Nodes {
		if current == nil || current.Boxes[r.Node] != tutti.BoxDigest(r.BoxKey) {
			out = append(out, r)
		}
	}
	return out
}

func (s *socket) recipients(ctx context.Context, req request) (wire.NodeRecipients, error) {
	return persist[wire.NodeRecipients](ctx, s.agent, wire.OpRecipients, wire.RecipientsQuestion{Run: s.spec.Order.Run, Key: req.Key, For: req.For})
}

// ownSecret returns the value that this node has published under a key, in clear. The method
// returns nil if there is no value, or if the node cannot open it.
func (s *socket) ownSecret(ctx context.Context, key string) (json.RawMessage, error) {
	q := publishedQuery(key)
	a, err := persist[wire.Answer](ctx, s.agent, wire.OpAsk, wire.Question{Run: s.spec.Order.Run, Query: q, Opens: true})
	if err == nil {
		err = a.Validate(q)
	}
	if err != nil {
		return nil, err
	}
	s.keepKnown(q, a)
	if !a.Found {
		return nil, nil
	}
	clear, secret, err := s.agent.open(a.Value, true)
	if err != nil || !secret {
		return nil, nil //nolint:nilerr // it is sealed to an earlier key, so publish it again
	}
	return clear, nil
}

// publishSecret seals a value and publishes it. If the value is already published, publishSecret adds
// the missing pieces. The method needs the server, which names the recipients. The agent stores
// nothing in clear while it waits for the server.
func (s *socket) publishSecret(ctx context.Context, req request) (tutti.Digest, error) {
	to, err := s.recipients(ctx, req)
	if err != nil {
		return "", tutti.Wrap("", err, "publish the secret %q", req.Key)
	}
	current, err := s.ownSecret(ctx, req.Key)
	if err != nil {
		return "", err
	}
	text := tutti.SecretText{Key: req.Key, ID: rand.Text(), Value: req.Value}
	adds := current != nil && sameValue(current, req.Value)
	pieces := to.Nodes
	if adds {
		text.ID, pieces = to.Current.ID, missing(to, to.Current)
	} else if self := s.agent.boxKey(); self != "" && !slices.ContainsFunc(pieces, func(r tutti.Recipient) bool { return r.Node == s.spec.Node }) {
		pieces = append([]tutti.Recipient{{Node: s.spec.Node, BoxKey: self}}, pieces...)
	}
	moves := adds && !slices.Equal(to.Current.For, req.For)
	secret := tutti.Secret{Key: req.Key, ID: text.ID, For: req.For}
	if !adds || moves {
		if secret.Recovery, err = sealing.ToRecovery(text, req.For, to.Recovery); err != nil {
			return "", err
		}
	}
	batches, err := sealing.Batches(secret, text, pieces)
	if err != nil {
		return "", err
	}
	for i, batch := range batches {
		in := wire.Publish{Run: s.spec.Order.Run, Key: req.Key, Secret: &tutti.SealSecret{Secret: batch, Adds: adds || i > 0, Moves: moves && i == 0}}
		if _, err := persist[struct{}](ctx, s.agent, wire.OpPublish, in); err != nil {
			return "", err
		}
	}
	_, _ = s.ownSecret(ctx, req.Key) // store the published value for local runs, which compare their value with it
	return tutti.Secret{ID: text.ID}.Digest(), nil
}

// boxKey returns the public key to which others seal secrets. The method returns an empty
// string if the node has no key for secrets.
func (a *Agent) boxKey() string {
	if a.opts.Boxes == nil {
		return ""
	}
	return sealing.PublicKey(a.opts.Boxes.Keys()[0])
}
