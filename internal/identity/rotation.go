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

// rotationFile is the set that is to come, and how far it is. It is one file: after a crash it is there as a whole, or
// not at all.
type rotationFile struct {
	Phase tutti.RotationPhase `json:"phase"`
	Files map[string]string   `json:"files"` // of the set, by the names that they will have
}

// KeySets returns the sets that are trusted now.
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

// BeginRotation makes the next set, beside the present one, if there is none yet: both are trusted from now on.
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

// EnterRotation goes to a phase in which two sets are trusted: which of them issues.
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

// enter needs a.mu. What is on disk is so far before anything is issued by it.
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

// FinishRotation puts the next set in the place of the present one, whose keys are gone then. A bus that runs trusts them
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

// install replaces the files of the present set. It may be done again: which account trusts whom is replaced first, by
// which it is known who has signed it; the CA's certificate, which says what the set was, is the last one.
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

// AbandonRotation forgets the next set.
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

// loadRotation reads the next set; nil: there is none. One that is to be the present one becomes it here, before that is
// read.
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

// finishInstall carries on what FinishRotation has begun.
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
	for _, k := range present.busKeys() { // the names, if nobody has written them yet: then these are the old ones
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
