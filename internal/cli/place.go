package cli

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Default paths and addresses.
const (
	DefaultServerDir = "/var/lib/tutti/server"
	DefaultAgentDir  = "/var/lib/tutti/agent"
	DefaultPolicy    = "/etc/tutti/policy"
	DefaultSocket    = "/run/tutti/server.sock"
	DefaultListen    = ":8150"
	DefaultBus       = ":8151"
	defaultFleetFile = "tutti.yaml"
)

// defaultOperatorDir is $TUTTI_OPERATOR. If the variable is empty, the directory is
// tutti in the user's configuration directory.
func defaultOperatorDir() string {
	if dir := os.Getenv("TUTTI_OPERATOR"); dir != "" {
		return dir
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "/etc/tutti/operator"
	}
	return filepath.Join(dir, "tutti")
}

// newEncoder returns an encoder that does not escape < and &.
func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
