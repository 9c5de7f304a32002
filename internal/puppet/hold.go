package puppet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// aside is where Puppet's file is before it is there, and after: beside it, so that
// one link or rename moves it.
func aside(file string) string { return file + ".tutti" }

// DisabledBy is what Puppet's file that disables it says, as Puppet writes it.
func DisabledBy(message string) []byte {
	raw, _ := json.Marshal(map[string]string{"disabled_message": message}) // strings always encode
	return raw
}

// Hold disables Puppet with a message. fs.ErrExist: it is disabled already, which
// stays as it is. The file is there as a whole or not at all.
func (l Local) Hold(message string) error {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.DisabledLock), 0o755); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	if err := durable.WriteFile(aside(c.DisabledLock), DisabledBy(message), 0o644); err != nil { // as Puppet's
		return tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	err = os.Link(aside(c.DisabledLock), c.DisabledLock)
	_ = os.Remove(aside(c.DisabledLock)) // the next one replaces it
	if err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	return durable.SyncDir(filepath.Dir(c.DisabledLock))
}

// Unhold enables Puppet if it is disabled by exactly what Hold has written. What
// somebody else has written stays, also if that is done at the same moment.
func (l Local) Unhold(message string) error {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return err
	}
	_ = os.Remove(aside(c.DisabledLock)) // of one that did not come to its end
	if ours, err := is(c.DisabledLock, message); err != nil || !ours {
		return err
	}
	return takeAway(c.DisabledLock, message)
}

// takeAway removes a file that has been ours a moment ago. What it moves aside is
// looked at again: it may be somebody else's by then, and is put back.
func takeAway(file, message string) error {
	err := os.Rename(file, aside(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "enable Puppet")
	}
	if ours, err := is(aside(file), message); err != nil || !ours {
		if err := os.Link(aside(file), file); err != nil && !errors.Is(err, fs.ErrExist) {
			return tutti.Wrap(tutti.CodeUnavailable, err, "leave disabled what somebody else has disabled")
		}
	}
	if err := os.Remove(aside(file)); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "enable Puppet")
	}
	return durable.SyncDir(filepath.Dir(file))
}

func is(file, message string) (bool, error) {
	raw, err := excerpt.Read(file, maxLockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.Equal(raw, DisabledBy(message)), tutti.Wrap(tutti.CodeUnavailable, err, "is Puppet disabled?")
}

// Standing says whether Puppet is disabled, by exactly what Hold has written or by
// somebody else, and which Puppet runs.
func (l Local) Standing(message string) (tutti.LeaseReport, error) {
	var out tutti.LeaseReport
	c, err := ReadConfig(l.Root)
	if err != nil {
		return out, err
	}
	if out.Ours, err = is(c.DisabledLock, message); err != nil {
		return out, err
	}
	if out.Message, out.Enabled, err = readDisabled(c.DisabledLock); err != nil {
		return out, err
	}
	out.Ours = out.Ours && !out.Enabled // it may have gone between two looks
	running, err := held(c.RunLock)
	if err == nil && running {
		pid, _ := excerpt.Read(c.RunLock, maxLockFile)
		out.Busy = fmt.Sprintf("pid %s", strings.TrimSpace(string(pid)))
	}
	return out, err
}
