// Package serverdir handles the content of a server's directory. The directory contains the server's configuration
// and keys, the files that note the end of its log, and its epochs. The package also makes and restores backups of
// the directory.
package serverdir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// Config contains the settings that `server init` fixes.
type Config struct {
	Host   string `json:"host"` // the name by which nodes and operators reach the server
	Listen string `json:"listen"`
	Bus    string `json:"bus"`
	// First is the certificate of the first operator. The server adds this certificate to
	// the log.
	First *tutti.OperatorIssued `json:"first_operator,omitempty"`
}

// ConfigFile is the name of the file with the Config in a server's directory.
const ConfigFile = "server.json"

// ReadConfig reads the configuration of the server in dir. ReadConfig returns CodeNotFound
// if there is no server.
func ReadConfig(dir string) (Config, error) {
	var out Config
	path := filepath.Join(dir, ConfigFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return out, tutti.Errorf(tutti.CodeNotFound, "no server in %s; make one with: tutti server init --dir %s", dir, dir)
	}
	if err != nil {
		return out, tutti.Wrap(tutti.CodeInvalid, err, "%s", path)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, damaged(path, err)
	}
	return out, nil
}

// LoadAuthority reads the keys of the server in dir. LoadAuthority returns CodeDamaged if one
// of the keys is damaged.
func LoadAuthority(dir string) (*identity.Authority, error) {
	path := filepath.Join(dir, "identity")
	authority, err := identity.Load(path)
	if errors.Is(err, identity.ErrCorrupt) {
		return nil, damaged(path, err)
	}
	return authority, err
}

// The function `damaged` returns an error that says how to replace a damaged file that is
// also in a backup.
func damaged(path string, err error) error {
	return tutti.Wrap(tutti.CodeDamaged, err, "%s is damaged; nothing was changed; put it back from a backup", path)
}
