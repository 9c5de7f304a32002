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

// aside returns a second name for the file that disables Puppet. The file has this name before Hold puts it in
// place, and after Unhold takes it away. Both names are in the same directory, so that one link or rename moves
// the file.
func aside(file string) string { return file + ".tutti" }

// DisabledBy returns the content of the file that disables Puppet, as Puppet writes it.
func DisabledBy(message string) []byte {
	raw, _ := json.Marshal(map[string]string{"disabled_message": message}) // strings always encode
	return raw
}

// Hold disables Puppet with a message. If Puppet is already disabled, Hold changes nothing and returns
// fs.ErrExist. The file appears complete or not at all.
func (l Local) Hold(message string) error {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.DisabledLock), 0o755); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	if err := durable.WriteFile(aside(c.DisabledLock), DisabledBy(message), 0o644); err != nil { // the mode that Puppet uses
		return tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	err = os.Link(aside(c.DisabledLock), c.DisabledLock)
	_ = os.Remove(aside(c.DisabledLock)) // if this fails, the next Hold replaces the file
	if err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "disable Puppet")
	}
	return durable.SyncDir(filepath.Dir(c.DisabledLock))
}

// Unhold enables Puppet if its file has exactly the content that Hold has written. A file from someone else stays, even
// if they write it at the same moment.
func (l Local) Unhold(message string) error {
	c, err := ReadConfig(l.Root)
	if err != nil {
		return err
	}
	_ = os.Remove(aside(c.DisabledLock)) // a Hold that did not finish may have left this file
	if ours, err := is(c.DisabledLock, message); err != nil || !ours {
		return err
	}
	return takeAway(c.DisabledLock, message)
}

// takeAway removes a file that was ours a moment ago. The function moves the file aside and reads it again. If
// someone else has replaced the file in the meantime, takeAway puts their file back.
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
			return tutti.Wrap(tutti.CodeUnavailable, err, "keep Puppet disabled, because somebody else has disabled it")
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

// Standing reports whether Puppet is disabled and who has disabled it: Hold with this message, or someone else.
// Standing also reports which Puppet is running.
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
	out.Ours = out.Ours && !out.Enabled // somebody may have removed the file between the two readings
	running, err := held(c.RunLock)
	if err == nil && running {
		pid, _ := excerpt.Read(c.RunLock, maxLockFile)
		out.Busy = fmt.Sprintf("pid %s", strings.TrimSpace(string(pid)))
	}
	return out, err
}
