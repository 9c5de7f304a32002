package app

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/deploy"
	"github.com/tutti-project/tutti/internal/durable"
)

const (
	unitDir      = "/etc/systemd/system"
	packagedUnit = "/lib/systemd/system"
	unitBinary   = "/usr/local/bin/tutti"
)

// startUnit starts a unit of tutti now and at every boot. A unit that a
// package brought is used as it is; else ours is written, for this binary and
// these arguments.
func startUnit(ctx context.Context, name, args string) error {
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

func writeUnit(name, args string) error {
	unit, err := deploy.Units.ReadFile(name)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	verb, _, _ := strings.Cut(args, " ")
	text := strings.Replace(string(unit), "ExecStart="+unitBinary+" "+verb, "ExecStart="+self+" "+args, 1)
	return durable.WriteFile(unitDir+"/"+name, []byte(text), 0o644)
}
