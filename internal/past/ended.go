package past

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Ended is an ended run with its report.
type Ended struct {
	Seq    uint64         `json:"seq"`
	At     time.Time      `json:"at"` // when the server stored the result
	Run    tutti.RunID    `json:"run"`
	Node   tutti.NodeName `json:"node"`
	Report tutti.Digest   `json:"report"`
	// Ordered is true for a run that the server ordered, in mode apply or noop. It is false for a run of `puppet agent`
	// and for a foreign run.
	Ordered bool `json:"ordered,omitempty"`
}
