// Package deploy has the systemd units. Packages install them as files. The binary contains them,
// because `tutti join` and `tutti server init --unit` write them.
package deploy

import "embed"

// Units are tutti-server.service, tutti-agent.service, and tutti-backup.service with its timer.
//
//go:embed *.service *.timer
var Units embed.FS
