package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/deploy"
	"github.com/tutti-project/tutti/internal/durable"
)

const (
	// AgentUnit is the unit of an agent.
	AgentUnit = "tutti-agent.service"
	// ServerUnit is the unit of a server.
	ServerUnit = "tutti-server.service"

	unitDir      = "/etc/systemd/system"
	packagedUnit = "/lib/systemd/system"
	unitBinary   = "/usr/local/bin/tutti"
)

// UnitDirs are the directories with Tutti's units. Tutti writes to the first directory. Packages
// write to the second directory.
func UnitDirs() []string { return []string{unitDir, packagedUnit} }

// StartUnit starts a unit of tutti now and at every boot. If a package has the unit,
// StartUnit uses it unchanged. If no package has the unit, StartUnit writes a unit for
// this binary and these arguments.
func StartUnit(ctx context.Context, name, args string) error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return tutti.Errorf(tutti.CodeInvalid, "systemd does not run here; start it yourself: tutti %s", args)
	}
	if _, err := os.Stat(packagedUnit + "/" + name); err != nil {
		if err := writeUnit(name, args); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{{"daemon-reload"}, {"enable", "--quiet", name}, {"restart", name}} {
		cmd := exec.CommandContext(ctx, "systemctl", argv...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("systemctl %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// WriteBackupUnits writes the timer for daily backups of a server, and the timer's service. WriteBackupUnits does
// not enable the timer, because only a person knows whether there is room for backups.
func WriteBackupUnits(dir string) error {
	const service, timer = "tutti-backup.service", "tutti-backup.timer"
	if _, err := os.Stat(packagedUnit + "/" + timer); err == nil {
		return nil
	}
	text, err := deploy.Units.ReadFile(timer)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(unitDir+"/"+timer, text, 0o644); err != nil {
		return err
	}
	return writeUnit(service, "server backup --dir "+dir)
}

func writeUnit(name, args string) error {
	text, err := UnitText(name, args)
	if err != nil {
		return err
	}
	return durable.WriteFile(unitDir+"/"+name, []byte(text), 0o644)
}

// UnitText returns the text of the named unit. It is the text that StartUnit writes for the arguments
// `VERB --dir DIR`. UnitText returns CodeInvalid if a unit with these arguments could not run.
func UnitText(name, args string) (string, error) {
	unit, err := deploy.Units.ReadFile(name)
	if err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return unitFor(string(unit), self, args)
}

// unitFor adapts a unit to the binary and the arguments `VERB --dir DIR`. If the unit is confined
// (ProtectSystem), unitFor permits it to write to DIR. unitFor refuses a binary or DIR in a place
// that the unit hides from its process.
func unitFor(unit, binary, args string) (string, error) {
	verb, dir, ok := strings.Cut(args, " --dir ")
	if !ok || !filepath.IsAbs(dir) || strings.ContainsAny(binary+dir, " \t\n%\"'\\$") {
		return "", tutti.Errorf(tutti.CodeInvalid, "a unit for %s %s: binary and directory must be absolute paths without spaces, quotes, '%%' and '$'", binary, args)
	}
	if strings.Contains(unit, "ProtectHome=yes") {
		for _, path := range []string{binary, dir} {
			if hidden(path) {
				return "", tutti.Errorf(tutti.CodeInvalid, "%s: the unit cannot use files below /home, /root, /run/user and /tmp; use another directory, for the binary for example %s", path, unitBinary)
			}
		}
	}
	unit = strings.Replace(unit, "ExecStart="+unitBinary+" "+verb, "ExecStart="+binary+" "+args, 1)
	state := "StateDirectory=" + strings.TrimPrefix(dir, "/var/lib/") + "\n"
	if strings.Contains(unit, "StateDirectory=") && !strings.Contains(unit, state) {
		unit = stateRE.ReplaceAllString(unit, "ReadWritePaths="+dir+"\n")
	}
	return unit, nil
}

var stateRE = regexp.MustCompile(`(?m)^StateDirectory=.*\n`)

func hidden(path string) bool {
	return slices.ContainsFunc([]string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"}, func(p string) bool {
		return strings.HasPrefix(filepath.Clean(path)+"/", p)
	})
}
