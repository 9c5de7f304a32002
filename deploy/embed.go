// Package deploy has the systemd units. Packages (nfpm.yaml) install the units as files. The binary contains the units,
// because `tutti join` and `tutti server init --unit` write them to the disk.
package deploy

import "embed"

// Units are tutti-server.service, tutti-agent.service, and tutti-backup.service with its timer.
//
//go:embed *.service *.timer
var Units embed.FS
