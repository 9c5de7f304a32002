package operator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// SeenFile is a file in an operator's directory. SeenFile contains the highest position of the server
// that this operator has seen.
const SeenFile = "seen.json"

// seen is the content of SeenFile. Other commands of the operator may write the file, too. Each
// command writes only a position that is higher than the one in the file. If the file cannot be
// read or written, commands work without this check.
type seen struct {
	path string
	mu   sync.Mutex
}

// Seen implements httpapi.Witness.
func (s *seen) Seen() tutti.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read()
}

func (s *seen) read() (at tutti.Position) {
	raw, err := os.ReadFile(s.path)
	if err != nil || json.Unmarshal(raw, &at) != nil {
		return tutti.Position{}
	}
	return at
}

// See implements httpapi.Witness.
func (s *seen) See(at tutti.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.read()
	if at == before || at.Behind(before, "") != nil || at.Epoch.Plausible(before.Epoch, time.Now()) != nil {
		return
	}
	if raw, err := json.Marshal(at); err == nil {
		_ = durable.WriteFile(s.path, append(raw, '\n'), 0o600)
	}
}

// seenBy returns the witness of the operator in a directory.
func seenBy(operatorDir string) *seen { return &seen{path: filepath.Join(operatorDir, SeenFile)} }
