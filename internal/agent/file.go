package agent

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
)

// maxMessage bounds one line on the socket and in the files of a run.
const maxMessage = 64 << 20

// writeJSON writes a file of mode 0600 by rename; when it returns, content and
// name are on disk.
func writeJSON(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, raw, 0o600)
}

func readJSON[T any](path string) (T, error) {
	var out T
	raw, err := os.ReadFile(path)
	if err != nil {
		return out, err
	}
	return out, tutti.Wrap(tutti.CodeInternal, json.Unmarshal(raw, &out), "%s is damaged", filepath.Clean(path))
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// modified is when a file was written, the zero time if it is gone.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
