package lab

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// The kernel forwards packets between interfaces only if this setting is 1. All labs share this setting. The last lab
// that is removed restores the old value. The old value is stored outside of the labs' directories. All callers have
// the machine's lock.
const (
	forwardSetting = "/proc/sys/net/ipv4/ip_forward"
	forwardBefore  = runDir + "/ip_forward"
)

// runDir contains the state of the running machine. All state directories share runDir.
const runDir = "/run/tutti/lab"

// The function `forward` turns packet forwarding on. If forwarding is off, the function first
// stores the old value in the file forwardBefore.
func forward() error {
	now, err := os.ReadFile(forwardSetting)
	if err != nil || strings.TrimSpace(string(now)) == "1" {
		return err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	if err := errors.Join(writeDurably(forwardBefore, now), syncDir(filepath.Dir(forwardBefore))); err != nil {
		return err
	}
	return os.WriteFile(forwardSetting, []byte("1\n"), 0o644)
}

// restoreSettings restores the machine's settings if there is no bridge of a lab any more.
func restoreSettings() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		if bridgeRE.MatchString(l.Name) {
			return nil
		}
	}
	errs := []error{unforward()}
	for _, l := range limits {
		errs = append(errs, l.restore())
	}
	return errors.Join(errs...)
}

func unforward() error {
	before, err := os.ReadFile(forwardBefore)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(forwardSetting, before, 0o644); err != nil {
		return err
	}
	return os.Remove(forwardBefore)
}
