package retain

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Reports says how many reports stay, with their logs, and for how long. Nothing
// that a fold needs is in them: what became of a run stays as long as the run.
type Reports struct {
	Most int           // the latest; 0: those of all runs
	For  time.Duration // since the run has ended; 0: as long as the run
}

// Ended is a run's end, with the digests of its report and log, if it has them.
type Ended struct {
	Seq         uint64
	At          time.Time
	Run         tutti.RunID
	Report, Log tutti.Digest
}

// Keeps returns those that stay of all that ended, given and returned in the order
// of the log.
func (k Reports) Keeps(ended []Ended, now time.Time) []Ended {
	if k.Most > 0 && len(ended) > k.Most {
		ended = ended[len(ended)-k.Most:]
	}
	for k.For > 0 && len(ended) > 0 && now.Sub(ended[0].At) > k.For {
		ended = ended[1:]
	}
	return ended
}
