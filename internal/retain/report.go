package retain

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Reports says how many reports with their logs are kept, and for how long. A fold does not need reports or logs. The
// result of a run is kept as long as the run.
type Reports struct {
	Most int           // how many of the latest reports are kept; 0 means all
	For  time.Duration // how long reports are kept after the run's end; 0 means as long as the run
}

// Ended is the end of a run, with the digests of its report and log if it has them.
type Ended struct {
	Seq         uint64
	At          time.Time
	Run         tutti.RunID
	Report, Log tutti.Digest
}

// Keeps returns the runs whose reports are kept. Input and output are in the order of the log.
func (k Reports) Keeps(ended []Ended, now time.Time) []Ended {
	if k.Most > 0 && len(ended) > k.Most {
		ended = ended[len(ended)-k.Most:]
	}
	for k.For > 0 && len(ended) > 0 && now.Sub(ended[0].At) > k.For {
		ended = ended[1:]
	}
	return ended
}
