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

// rotationFile contains the next key set and the phase of the rotation. Key set and phase are in one file, so after
// a crash the file is either complete or missing.
type rotationFile struct {
	Phase tutti.RotationPhase `json:"phase"`
	// content of each file of the key set; the map's key is the file's name after the rotation
	Files map[string]string `json:"files"`
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

// BeginRotation makes the next key set if there is no next key set yet. After BeginRotation, both sets are trusted.
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

// EnterRotation enters a phase. Two key sets are trusted in each phase. The phase decides which of the two sets
// issues credentials.
func (a *Authority) EnterRotation(phase tutti.RotationPhase) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil || !phase.Rotates() {
		return tutti.Errorf(tutti.CodeConflict, "phase %q: there is only one key set, so no rotation is going on", phase)
	}
	if a.phase == phase {
		return nil
	}
	return a.enter(phase, a.next)
}

// The method `enter` does the work of EnterRotation. The caller holds a.mu. The method writes the phase to disk
// before the authority issues anything in this phase.
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

// FinishRotation replaces the present key set by the next key set. The old keys are deleted. A running
// bus still trusts the old keys. After a restart, the bus no longer trusts the old keys, because it
// then gets its keys from Trust.
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

// The function `install` replaces the files of the present key set. After a crash, the caller can repeat the call.
// The function writes the names and the nodes' account first, because these files decide which keys sign. It
// writes the CA's certificate last, because this file shows whether the replacement is complete.
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

// AbandonRotation deletes the next key set.
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
		return fmt.Errorf("remove the key set that the rotation no longer needs: %w", err)
	}
	return durable.SyncDir(dir)
}

// loadRotation reads the next key set. loadRotation returns nil if there is no next key set. If a crash interrupted
// FinishRotation, loadRotation completes the rotation. So call loadRotation before you read the present set.
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
	// The accounts have the names of the old keys. As long as the file with the names is not
	// written, these files contain the old keys.
	for _, k := range present.busKeys() {
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
