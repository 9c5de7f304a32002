// Package machine is the life of a machine in a fleet: it joins and keeps its credentials, it leaves, and its systemd units
// start servers and agents.
package machine

import (
	"path/filepath"
)

// IdentityDir is the directory, in an agent's, of the files that say which node this is.
func IdentityDir(dir string) string { return filepath.Join(dir, "identity") }

// CompileFile is in the agent's directory, where there is a Puppet Server.
const CompileFile = "compile.json"
