package serverdir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/past"
)

// scrubFile is a file in a server's directory. The file contains the result of the last scrub
// of the server's content.
const scrubFile = "scrub.json"

// ScrubNotes stores the results of scrubs in a server's directory, for the server and for doctor.
type ScrubNotes struct{ Dir string }

// Last implements past.Scrubs. A backup counts as a scrub, because it also reads all
// content.
func (n ScrubNotes) Last() time.Time {
	backup, _ := LastBackup(n.Dir)
	if scrub := LastScrub(n.Dir); scrub.At.After(backup) {
		return scrub.At
	}
	return backup
}

// Done implements past.Scrubs.
func (n ScrubNotes) Done(found past.Scrub) error {
	raw, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(n.Dir, scrubFile), raw, 0o600)
}

// LastScrub returns the last scrub of a server's content. LastScrub returns the zero
// value if there was none.
func LastScrub(dir string) past.Scrub {
	raw, err := os.ReadFile(filepath.Join(dir, scrubFile))
	var found past.Scrub
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return past.Scrub{}
	}
	return found
}
