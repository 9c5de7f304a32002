package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/jwt/v2"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// rotationFile is the next key set and the phase of the rotation. It is one file, so after a crash it is either
// complete or not there.
type rotationFile struct {
	Phase tutti.RotationPhase `json:"phase"`
	Files map[string]string   `json:"files"` // files of the set, by their later names
}

// KeySets returns the key sets that are trusted now.
func (a *Authority) KeySets() (tutti.KeySets, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := tutti.KeySets{Phase: a.phase, Was: slices.Clone(a.names.Was)}
	var err error
	if out.Present, err = a.present.name(); err == nil && a.next != nil {
		out.Next, err = a.next.name()
	}
	return out, err
}

// BeginRotation makes the next key set if there is none yet. From now on, both sets are trusted.
func (a *Authority) BeginRotation() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next != nil {
		return nil
	}
	next, err := newKeySet(hostsOf(a.present.server.cert))
	if err != nil {
		return err
	}
	return a.enter(tutti.RotationBegun, next)
}

// EnterRotation enters a phase in which two key sets are trusted. The phase says which of them issues.
func (a *Authority) EnterRotation(phase tutti.RotationPhase) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil || !phase.Rotates() {
		return tutti.Errorf(tutti.CodeConflict, "phase %q: there is one key set", phase)
	}
	if a.phase == phase {
		return nil
	}
	return a.enter(phase, a.next)
}

// enter: the caller holds a.mu. The phase is on disk before anything is issued in it.
func (a *Authority) enter(phase tutti.RotationPhase, next *keySet) error {
	if err := a.writeRotation(phase, next); err != nil {
		return err
	}
	a.phase, a.next = phase, next
	return a.signNodes()
}

func (a *Authority) writeRotation(phase tutti.RotationPhase, next *keySet) error {
	files, err := next.files()
	if err != nil {
		return err
	}
	out := rotationFile{Phase: phase, Files: map[string]string{}}
	for _, f := range files {
		out.Files[f.name] = string(f.content)
	}
	raw, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the next key set: %w", err)
	}
	return writeFile(a.dir, fileRotation, raw)
}

// FinishRotation replaces the present key set by the next one. The old keys are then gone. A running bus trusts them
// until it is started again, by Trust.
func (a *Authority) FinishRotation() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		return nil
	}
	if err := a.writeRotation(tutti.RotationFinished, a.next); err != nil {
		return err
	}
	names := a.names
	names.Was = append(slices.Clone(names.Was), a.present.pin())
	if err := install(a.dir, names, a.next); err != nil {
		return err
	}
	a.names, a.present, a.next, a.phase = names, a.next, nil, ""
	return a.signNodes()
}

// install replaces the files of the present set. It can be repeated. The names and the nodes' account come first,
// because they say who signs. The CA's certificate comes last, because it shows which set was present.
func install(dir string, names accountNames, next *keySet) error {
	raw, err := json.MarshalIndent(names, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the names of accounts: %w", err)
	}
	account, err := readFile(dir, fileNodesJWT)
	if err != nil {
		return err
	}
	claims, err := jwt.DecodeAccountClaims(string(account))
	if err != nil {
		return corrupt(dir, fileNodesJWT)
	}
	text, err := signAccount(next, claims, "NODES", next.nodes)
	if err != nil {
		return err
	}
	files, err := next.files()
	if err != nil {
		return err
	}
	for _, f := range append([]file{{fileNames, raw}, {fileNodesJWT, []byte(text)}}, files...) {
		if err := writeFile(dir, f.name, f.content); err != nil {
			return err
		}
	}
	return removeRotation(dir)
}

// AbandonRotation drops the next key set.
func (a *Authority) AbandonRotation() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		return nil
	}
	if err := removeRotation(a.dir); err != nil {
		return err
	}
	a.next, a.phase = nil, ""
	return a.signNodes()
}

func removeRotation(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileRotation)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the key set that is no longer needed there: %w", err)
	}
	return durable.SyncDir(dir)
}

// loadRotation reads the next key set; nil: there is none. If FinishRotation was interrupted, loadRotation completes it
// before the present set is read.
func loadRotation(dir string) (*keySet, tutti.RotationPhase, error) {
	raw, err := readFile(dir, fileRotation)
	if errors.Is(err, ErrMissing) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	var in rotationFile
	if json.Unmarshal(raw, &in) != nil || !in.Phase.Rotates() && in.Phase != tutti.RotationFinished {
		return nil, "", corrupt(dir, fileRotation)
	}
	next, err := loadKeySet(dir, func(name string) ([]byte, error) {
		if in.Files[name] == "" {
			return nil, corrupt(dir, fileRotation)
		}
		return []byte(in.Files[name]), nil
	})
	if err != nil {
		return nil, "", errors.Join(corrupt(dir, fileRotation), err)
	}
	if in.Phase.Rotates() {
		return next, in.Phase, nil
	}
	return nil, "", finishInstall(dir, next)
}

// finishInstall completes an interrupted FinishRotation.
func finishInstall(dir string, next *keySet) error {
	ca, err := readFile(dir, fileCA)
	if err != nil {
		return err
	}
	cert, err := parseCert(ca)
	if err != nil {
		return corrupt(dir, fileCA)
	}
	var present keySet
	for _, k := range present.busKeys() { // for the names: if they are not written yet, these are still the old keys
		seed, err := readFile(dir, k.file)
		if err != nil {
			return err
		}
		if *k.pair, err = parseSeed(seed, k); err != nil {
			return corrupt(dir, k.file)
		}
	}
	names, err := loadNames(dir, &present)
	if err != nil {
		return err
	}
	if pin := pinOf(cert); pin != next.pin() && !slices.Contains(names.Was, pin) {
		names.Was = append(names.Was, pin)
	}
	return install(dir, names, next)
}
