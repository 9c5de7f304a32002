// Package machine has what servers and agents need from their machine: systemd units, the locks of their
// directories, and a node's credentials. It also lets a machine leave its fleet.
package machine

import (
	"path/filepath"
)

// IdentityDir is the directory inside an agent's directory with the files that say which node this is.
func IdentityDir(dir string) string { return filepath.Join(dir, "identity") }

// CompileFile is a file in the agent's directory on a host with a Puppet Server.
const CompileFile = "compile.json"
