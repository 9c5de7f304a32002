package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/past"
)

// scrubFile is a file in a server's directory that says what the last scrub of its content has found.
const scrubFile = "scrub.json"

// scrubNotes keeps what scrubs have found in a server's directory, for the server and for doctor.
type scrubNotes struct{ dir string }

// Last implements past.Scrubs. A backup counts as well, because it reads all content.
func (n scrubNotes) Last() time.Time {
	backup, _ := lastBackup(n.dir)
	if scrub := lastScrub(n.dir); scrub.At.After(backup) {
		return scrub.At
	}
	return backup
}

// Done implements past.Scrubs.
func (n scrubNotes) Done(found past.Scrub) error {
	raw, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(n.dir, scrubFile), raw, 0o600)
}

// lastScrub returns the last scrub of a server's content, or the zero value.
func lastScrub(dir string) past.Scrub {
	raw, err := os.ReadFile(filepath.Join(dir, scrubFile))
	var found past.Scrub
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return past.Scrub{}
	}
	return found
}
