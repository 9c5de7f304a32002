package operator

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
	"syscall"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/seal"
)

// The constants are the files of an operator's directory that secrets need.
const (
	RecoveryFile = "recovery.key" // the private half, made by `tutti secret init`
	PinsFile     = "pins.json"
)

// pins are the keys of nodes to which this operator has sealed secrets before, and the recovery key. An
// operator gets these keys from the server. A bad server could later name its own key for a node, to
// read the secrets. The pins show that the key has changed.
type pins struct {
	Recovery string                    `json:"recovery,omitempty"`
	Nodes    map[tutti.NodeName]string `json:"nodes,omitempty"`
	// Secrets contains the secrets that this operator has sealed, each with the targets for which they sealed it
	// last.
	Secrets map[string]pinnedSecret `json:"secrets,omitempty"`
}

type pinnedSecret struct {
	ID  string   `json:"id"`
	For []string `json:"for"`
}

// Sealer implements cli.Sealer with the files in the operator's directory.
type Sealer struct{}

// Init implements cli.Sealer.
func (Sealer) Init(c cli.Connection) (string, error) {
	if err := os.MkdirAll(c.OperatorDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(c.OperatorDir, RecoveryFile)
	switch _, err := os.Stat(path); {
	case err == nil:
		return "", tutti.Errorf(tutti.CodeConflict, "%s exists already: without this key, nobody could open the secrets that are sealed to it; `tutti secret init --show` prints its public half", path)
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
func (Sealer) Recovery(c cli.Connection) (string, error) {
	private, err := privateRecovery(c)
	if err != nil {
		return "", err
	}
	return seal.PublicOf(private)
}

func privateRecovery(c cli.Connection) (string, error) {
	path := filepath.Join(c.OperatorDir, RecoveryFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", tutti.Errorf(tutti.CodeNotFound, "no recovery key %s: get it from the operator who ran `tutti secret init`; a fleet needs this command only once", path)
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
func (Sealer) Seal(ctx context.Context, s cli.Server, c cli.Connection, key string, targets []string, value json.RawMessage, ask func(cli.SealedFor) error) (cli.SealedFor, error) {
	if err := tutti.ValidateKey(key); err != nil {
		return cli.SealedFor{}, err
	}
	value, err := data.CheckValue(key, value)
	if err != nil { // do not wrap the error, because it would quote the value
		return cli.SealedFor{}, tutti.Errorf(tutti.CodeInvalid, "secret %q: not a value that Puppet can read; it must be JSON of at most %d bytes, with integers of at most 64 bits and without an object that has the __ptype Tutti::Sealed", key, data.MaxValue)
	}
	to, err := s.Recipients(ctx, targets)
	if err != nil {
		return cli.SealedFor{}, err
	}
	text := tutti.SecretText{Key: key, ID: rand.Text(), Value: value}
	out := cli.SealedFor{Key: key, For: targets, Absent: to.Absent, Unknown: to.Unknown}
	for _, n := range to.Nodes {
		out.Nodes = append(out.Nodes, n.Node)
	}
	if err = pin(c, &out, to, ask); err != nil {
		return cli.SealedFor{}, err
	}
	secret := tutti.Secret{Key: key, ID: text.ID, For: targets}
	if err := remember(c, secret); err != nil {
		return cli.SealedFor{}, err
	}
	return out, send(ctx, s, secret, text, to.Recovery, to.Nodes, tutti.SealSecret{})
}

// send seals a secret and sends it in one or more requests. If send was interrupted, the operator runs `tutti secret
// reseal`.
func send(ctx context.Context, s cli.Server, secret tutti.Secret, text tutti.SecretText, recovery string, nodes []tutti.Recipient, as tutti.SealSecret) error {
	if recovery != "" {
		var err error
		if secret.Recovery, err = seal.ToRecovery(text, secret.For, recovery); err != nil {
			return err
		}
	}
	batches, err := seal.Batches(secret, text, nodes)
	if err != nil {
		return err
	}
	sent := 0
	for i, batch := range batches {
		as.Secret, as.Adds, as.Moves = batch, as.Adds || i > 0, as.Moves && i == 0
		if err := s.SealSecret(ctx, as); err != nil {
			if i > 0 {
				err = tutti.Wrap("", err, "secret %q is sealed to %d of %d nodes, the others wait; seal it to them with `tutti secret reseal %s`, or set it once more", secret.Key, sent, len(nodes), secret.Key)
			}
			return err
		}
		sent += len(batch.Pieces)
	}
	return nil
}

// Reseal implements cli.Sealer.
func (Sealer) Reseal(ctx context.Context, s cli.Server, c cli.Connection, view api.SecretView, targets []string, ask func(cli.SealedFor) error) (cli.SealedFor, error) {
	out := cli.SealedFor{Key: view.Key}
	private, err := privateRecovery(c)
	if err != nil {
		return out, err
	}
	moved := len(targets) > 0 && !slices.Equal(targets, view.For)
	if len(targets) == 0 {
		if err := sameTargets(c, view); err != nil {
			return out, err
		}
		targets = view.For
	}
	to, err := s.Recipients(ctx, targets)
	if err != nil {
		return out, err
	}
	out.For, out.Absent, out.Unknown = targets, to.Absent, to.Unknown
	if err = pin(c, &out, to, ask); err != nil {
		return out, err
	}
	lack := slices.DeleteFunc(to.Nodes, func(n tutti.Recipient) bool { return slices.Contains(view.Sealed, n.Node) })
	secret, err := s.RecoverSecret(ctx, view.Key)
	if err != nil {
		return out, err
	}
	if secret.ID != view.ID || secret.Key != view.Key || !slices.Equal(secret.For, view.For) {
		return out, tutti.Errorf(tutti.CodeConflict, "secret %q has another value or other targets now: repeat the command", view.Key)
	}
	if len(lack) == 0 && !moved {
		return out, nil
	}
	value, err := seal.OpenRecovery(tutti.SealedValue{Key: view.Key, ID: view.ID, For: view.For, Sealed: secret.Recovery}, private)
	if err != nil {
		return out, tutti.Wrap("", err, "with the recovery key in %s", c.OperatorDir)
	}
	for _, n := range lack {
		out.Nodes = append(out.Nodes, n.Node)
	}
	text := tutti.SecretText{Key: view.Key, ID: view.ID, Value: value}
	recovery := ""
	if moved {
		recovery = to.Recovery
	}
	now := tutti.Secret{Key: view.Key, ID: view.ID, For: targets}
	if err := remember(c, now); err != nil {
		return out, err
	}
	return out, send(ctx, s, now, text, recovery, lack, tutti.SealSecret{Adds: true, Moves: moved})
}

// Trust implements cli.Sealer.
func (Sealer) Trust(ctx context.Context, s cli.Server, c cli.Connection, nodes []tutti.NodeName, recovery bool) error {
	known, unlock, err := lockPins(c)
	if err != nil {
		return err
	}
	defer unlock()
	for _, n := range nodes {
		to, err := s.Recipients(ctx, []string{tutti.ForNode(n)})
		if err != nil {
			return err
		}
		if len(to.Nodes) == 0 {
			return tutti.Errorf(tutti.CodeNotFound, "node %s has not joined: it has no key", n)
		}
		if err := plausible([]string{tutti.ForNode(n)}, to.Nodes); err != nil {
			return err
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

// The function `pin` checks the recipients that the server names, and stores their keys. It returns an error if a
// recipient cannot be among the targets, or if a key differs from the key that is stored for the node. Before
// `pin` stores the first key of a node, it asks the operator. It writes the names of the nodes with a first key
// to `out.First`.
func pin(c cli.Connection, out *cli.SealedFor, to tutti.Recipients, ask func(cli.SealedFor) error) (err error) {
	if err := plausible(out.For, to.Nodes); err != nil {
		return err
	}
	if out.First, out.Recovery, err = compare(c, to, false); err != nil {
		return err
	}
	if len(out.First) > 0 || out.Recovery != "" {
		if err := ask(*out); err != nil {
			return err
		}
	}
	_, _, err = compare(c, to, true)
	return err
}

// remember stores the targets of a secret.
func remember(c cli.Connection, s tutti.Secret) error {
	known, unlock, err := lockPins(c)
	if err != nil {
		return err
	}
	defer unlock()
	known.Secrets[s.Key] = pinnedSecret{ID: s.ID, For: s.For}
	return known.save(c)
}

// sameTargets compares the targets of a secret that the server shows with the targets for which this
// operator last sealed the secret. It returns an error if they differ. The check is needed because a
// bad server could show old targets.
func sameTargets(c cli.Connection, view api.SecretView) error {
	known, err := loadPins(c)
	if err != nil {
		return err
	}
	had, there := known.Secrets[view.Key]
	if !there || had.ID != view.ID || slices.Equal(had.For, view.For) {
		return nil
	}
	var are []string
	for _, target := range view.For {
		are = append(are, "--for "+target)
	}
	return tutti.Errorf(tutti.CodeRefused, "secret %q is for %s according to the server, but was for %s when this operator last sealed it; if another operator has changed the targets, run: tutti secret reseal %s %s",
		view.Key, strings.Join(view.For, " "), strings.Join(had.For, " "), view.Key, strings.Join(are, " "))
}

// compare compares the keys that the server names with the stored keys. It returns an error if a key
// has changed. It returns the nodes for which no key is stored, and the recovery key if no recovery key
// is stored. If keep is true, compare stores the new keys.
func compare(c cli.Connection, to tutti.Recipients, keep bool) (first []tutti.NodeName, recovery string, err error) {
	known, unlock, err := lockPins(c)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	public, err := (Sealer{}).Recovery(c)
	if err == nil && public != to.Recovery {
		return nil, "", tutti.Errorf(tutti.CodeRefused, "%s differs from the recovery key of the fleet file (%s): write the public half of your key into the fleet file (`tutti secret init --show`), "+
			"or move your key away and get the fleet's key", filepath.Join(c.OperatorDir, RecoveryFile), to.Recovery)
	}
	if known.Recovery != "" && known.Recovery != to.Recovery {
		return nil, "", tutti.Errorf(tutti.CodeRefused, "the recovery key of the fleet file (%s) is not the one that this operator knows (%s): anyone who has changed it could read the secrets that are sealed now; "+
			"if an operator has changed it, run: tutti secret trust --recovery", to.Recovery, known.Recovery)
	}
	if known.Recovery == "" && public == "" {
		recovery = to.Recovery
	}
	known.Recovery = to.Recovery
	var others []string
	for _, n := range to.Nodes {
		switch had := known.Nodes[n.Node]; had {
		case n.BoxKey:
		case "":
			known.Nodes[n.Node] = n.BoxKey
			first = append(first, n.Node)
		default:
			others = append(others, string(n.Node))
		}
	}
	if len(others) > 0 {
		return nil, "", tutti.Errorf(tutti.CodeRefused, "these nodes have other keys than when this operator last sealed to them: %s; if the machines were replaced, or somebody ran `tutti agent rotate-key` there, run: tutti secret trust %s",
			strings.Join(others, ", "), strings.Join(others, " "))
	}
	if !keep {
		return first, recovery, nil
	}
	return first, recovery, known.save(c)
}

// plausible returns an error if an honest server would not name these recipients. An honest server
// names no node twice. If all targets are nodes, an honest server names no node outside the targets.
// For a group, the server decides which nodes belong to it.
func plausible(targets []string, nodes []tutti.Recipient) error {
	groups := slices.ContainsFunc(targets, func(target string) bool { group, _ := tutti.Target(target); return group != "" })
	there := map[tutti.NodeName]bool{}
	for _, n := range nodes {
		if err := n.Node.Validate(); err != nil {
			return tutti.Wrap("", err, "the server names a recipient")
		}
		if there[n.Node] || !groups && !slices.Contains(targets, tutti.ForNode(n.Node)) {
			return tutti.Errorf(tutti.CodeRefused, "the server names node %s for %s: the server lies, or is broken; nothing was sealed", n.Node, strings.Join(targets, " "))
		}
		there[n.Node] = true
	}
	return nil
}

// lockPins locks and reads the pins. Only one command at a time has the lock. The returned function
// `unlock` releases the lock.
func lockPins(c cli.Connection) (known pins, unlock func(), err error) {
	if err := os.MkdirAll(c.OperatorDir, 0o700); err != nil {
		return known, nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.OperatorDir, PinsFile+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return known, nil, err
	}
	unlock = func() { f.Close() }
	for end := time.Now().Add(pinsWait); ; {
		if err = flock(f); err == nil {
			break
		}
		if time.Now().After(end) {
			unlock()
			return known, nil, tutti.Errorf(tutti.CodeDeadline, "another command holds %s for %s already", f.Name(), pinsWait)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if known, err = loadPins(c); err != nil {
		unlock()
	}
	return known, unlock, err
}

// pinsWait is how long a command waits for the lock while another command of the same operator has it.
const pinsWait = 10 * time.Second

func loadPins(c cli.Connection) (pins, error) {
	path := filepath.Join(c.OperatorDir, PinsFile)
	raw, err := os.ReadFile(path)
	out := pins{}
	if err == nil {
		err = tutti.Wrap(tutti.CodeInvalid, json.Unmarshal(raw, &out), "%s: it is damaged; without this file, only the server's word decides which keys nodes have", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if out.Nodes == nil {
		out.Nodes = map[tutti.NodeName]string{}
	}
	if out.Secrets == nil {
		out.Secrets = map[string]pinnedSecret{}
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
	return durable.WriteFile(filepath.Join(c.OperatorDir, PinsFile), append(raw, '\n'), 0o600)
}

func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
