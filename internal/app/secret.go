package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/seal"
)

// Files of an operator's directory that secrets need.
const (
	recoveryFile = "recovery.key" // the private half; secret init
	pinsFile     = "pins.json"
)

// pins are the keys that this operator has sealed to before. The server says which keys nodes have: one that names another
// key for a node could read what is sealed.
type pins struct {
	Recovery string                    `json:"recovery,omitempty"`
	Nodes    map[tutti.NodeName]string `json:"nodes,omitempty"`
}

// sealer implements cli.Sealer with what lies in the operator's directory.
type sealer struct{}

// Init implements cli.Sealer.
func (sealer) Init(c cli.Connection) (string, error) {
	if err := os.MkdirAll(c.OperatorDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(c.OperatorDir, recoveryFile)
	switch _, err := os.Stat(path); {
	case err == nil:
		return "", tutti.Errorf(tutti.CodeConflict, "%s is there: secrets that are sealed to it could not be opened without it; `tutti secret init --show` prints its public half", path)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	private, public, err := seal.NewRecovery()
	if err != nil {
		return "", err
	}
	if err := durable.WriteFile(path, []byte(private+"\n"), 0o600); err != nil {
		return "", err
	}
	return public, nil
}

// Recovery implements cli.Sealer.
func (sealer) Recovery(c cli.Connection) (string, error) {
	private, err := privateRecovery(c)
	if err != nil {
		return "", err
	}
	return seal.PublicOf(private)
}

func privateRecovery(c cli.Connection) (string, error) {
	path := filepath.Join(c.OperatorDir, recoveryFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", tutti.Errorf(tutti.CodeNotFound, "no recovery key %s: get it from the operator who ran `tutti secret init`, or make one with it", path)
	}
	private := strings.TrimSpace(string(raw))
	if err == nil {
		if _, err = seal.PublicOf(private); err != nil {
			err = tutti.Wrap("", err, "%s", path)
		}
	}
	return private, err
}

// Seal implements cli.Sealer.
func (sealer) Seal(ctx context.Context, s cli.Server, c cli.Connection, key string, targets []string, value json.RawMessage) (cli.SealedFor, error) {
	to, err := s.Recipients(ctx, targets)
	if err != nil {
		return cli.SealedFor{}, err
	}
	if err := pin(c, to); err != nil {
		return cli.SealedFor{}, err
	}
	text := tutti.SecretText{Key: key, ID: rand.Text(), Value: value}
	out := cli.SealedFor{Key: key, Absent: to.Absent}
	for _, n := range to.Nodes {
		out.Nodes = append(out.Nodes, n.Node)
	}
	return out, send(ctx, s, tutti.Secret{Key: key, ID: text.ID, For: targets}, text, to.Recovery, to.Nodes, false)
}

// send seals and brings it, in as many requests as it takes. Who is interrupted runs `tutti secret reseal`.
func send(ctx context.Context, s cli.Server, secret tutti.Secret, text tutti.SecretText, recovery string, nodes []tutti.Recipient, adds bool) error {
	if recovery != "" {
		var err error
		if secret.Recovery, err = seal.ToRecovery(text, recovery); err != nil {
			return err
		}
	}
	batches, err := seal.Batches(secret, text, nodes)
	if err != nil {
		return err
	}
	for i, batch := range batches {
		if err := s.SealSecret(ctx, tutti.SealSecret{Secret: batch, Adds: adds || i > 0}); err != nil {
			return err
		}
	}
	return nil
}

// Reseal implements cli.Sealer.
func (sealer) Reseal(ctx context.Context, s cli.Server, c cli.Connection, view tutti.SecretView, targets []string) (cli.SealedFor, error) {
	out := cli.SealedFor{Key: view.Key}
	private, err := privateRecovery(c)
	if err != nil {
		return out, err
	}
	moved := len(targets) > 0 && !slices.Equal(targets, view.For)
	if !moved {
		targets = view.For
	}
	to, err := s.Recipients(ctx, targets)
	if err != nil {
		return out, err
	}
	if err := pin(c, to); err != nil {
		return out, err
	}
	out.Absent = to.Absent
	lack := slices.DeleteFunc(to.Nodes, func(n tutti.Recipient) bool { return slices.Contains(view.Sealed, n.Node) })
	secret, err := s.RecoverSecret(ctx, view.Key)
	if err != nil {
		return out, err
	}
	if secret.ID != view.ID {
		return out, tutti.Errorf(tutti.CodeConflict, "secret %q has another value by now: repeat", view.Key)
	}
	if len(lack) == 0 && !moved {
		return out, nil
	}
	value, err := seal.OpenRecovery(tutti.SealedValue{Key: secret.Key, ID: secret.ID, Sealed: secret.Recovery}, private)
	if err != nil {
		return out, tutti.Wrap("", err, "with the recovery key in %s", c.OperatorDir)
	}
	for _, n := range lack {
		out.Nodes = append(out.Nodes, n.Node)
	}
	text := tutti.SecretText{Key: view.Key, ID: view.ID, Value: value}
	return out, send(ctx, s, tutti.Secret{Key: view.Key, ID: view.ID, For: targets}, text, "", lack, true)
}

// Trust implements cli.Sealer.
func (sealer) Trust(ctx context.Context, s cli.Server, c cli.Connection, nodes []tutti.NodeName, recovery bool) error {
	known, err := loadPins(c)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		to, err := s.Recipients(ctx, []string{tutti.ForNode(n)})
		if err != nil {
			return err
		}
		if len(to.Nodes) == 0 {
			return tutti.Errorf(tutti.CodeNotFound, "node %s has not joined: it has no key", n)
		}
		known.Nodes[n] = to.Nodes[0].BoxKey
	}
	if recovery {
		fleet, err := s.GetFleet(ctx)
		if err != nil {
			return err
		}
		if fleet.Secrets == nil {
			return tutti.Errorf(tutti.CodeNotFound, "the fleet file has no recovery key")
		}
		known.Recovery = fleet.Secrets.Recovery
	}
	return known.save(c)
}

// pin refuses keys that are not those of before, and remembers new ones.
func pin(c cli.Connection, to tutti.Recipients) error {
	known, err := loadPins(c)
	if err != nil {
		return err
	}
	if public, err := (sealer{}).Recovery(c); err == nil {
		known.Recovery = public // its private half is here
	}
	if known.Recovery != "" && known.Recovery != to.Recovery {
		return tutti.Errorf(tutti.CodeRefused, "the recovery key of the fleet file (%s) is not the one that this operator knows (%s): whoever changed it could read what is sealed now; "+
			"if it was an operator, run: tutti secret trust --recovery", to.Recovery, known.Recovery)
	}
	changed := known.Recovery == ""
	known.Recovery = to.Recovery
	var others []string
	for _, n := range to.Nodes {
		switch had := known.Nodes[n.Node]; had {
		case n.BoxKey:
		case "":
			known.Nodes[n.Node], changed = n.BoxKey, true
		default:
			others = append(others, string(n.Node))
		}
	}
	if len(others) > 0 {
		return tutti.Errorf(tutti.CodeRefused, "another key than this operator has sealed to before: %s; if the machines were replaced, run: tutti secret trust %s",
			strings.Join(others, ", "), strings.Join(others, " "))
	}
	if !changed {
		return nil
	}
	return known.save(c)
}

func loadPins(c cli.Connection) (pins, error) {
	path := filepath.Join(c.OperatorDir, pinsFile)
	raw, err := os.ReadFile(path)
	out := pins{}
	if err == nil {
		err = tutti.Wrap(tutti.CodeInvalid, json.Unmarshal(raw, &out), "%s: it is damaged; without it, the server is believed which keys nodes have", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if out.Nodes == nil {
		out.Nodes = map[tutti.NodeName]string{}
	}
	return out, err
}

func (p pins) save(c cli.Connection) error {
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.OperatorDir, 0o700); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(c.OperatorDir, pinsFile), append(raw, '\n'), 0o600)
}
