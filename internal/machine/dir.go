// Package machine contains what servers and agents need on their machine: systemd units, the locks of
// their directories, and a node's credentials. The package also makes a machine leave its fleet.
package machine

import (
	"path/filepath"
)

// IdentityDir returns the directory with the files that identify the node. It is inside the agent's directory.
func IdentityDir(dir string) string { return filepath.Join(dir, "identity") }

// CompileFile is a file in the agent's directory on a host with a Puppet Server.
const CompileFile = "compile.json"
