package lab

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// The kernel forwards packets between interfaces only if this is 1. All labs share this setting, so it is restored when
// the last bridge is gone. Its old value is kept outside of any lab. All callers hold the machine's lock.
const (
	forwardSetting = "/proc/sys/net/ipv4/ip_forward"
	forwardBefore  = runDir + "/ip_forward"
)

// runDir holds the state of the running machine, for all state directories.
const runDir = "/run/tutti/lab"

// forward turns forwarding on. Before that, it records that it was off.
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

// restoreSettings restores the machine's settings if no lab has a bridge any more.
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
