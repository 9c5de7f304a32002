// Package deploy holds the systemd units, as files for packages and as part of
// the binary for `tutti join` and `tutti server init --unit`.
package deploy

import "embed"

// Units are tutti-server.service, tutti-agent.service, and tutti-backup.service with its timer.
//
//go:embed *.service *.timer
var Units embed.FS
