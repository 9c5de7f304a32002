// Package deploy holds the systemd units, as files for packages and as part of
// the binary for `tutti join` and `tutti server init --unit`.
package deploy

import "embed"

// Units are tutti-server.service and tutti-agent.service.
//
//go:embed *.service
var Units embed.FS
