package app

import (
	"bytes"
	"strings"
	"sync"
)

// The type `words` collects log output.
type words struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(b)
}

func (w *words) has(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.all.String(), part)
}
