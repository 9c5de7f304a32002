package past

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Ended is an ended run with its report, or the facts that a node has sent.
type Ended struct {
	Seq    uint64         `json:"seq"`
	At     time.Time      `json:"at"` // when the server stored the result
	Run    tutti.RunID    `json:"run"`
	Node   tutti.NodeName `json:"node"`
	Report tutti.Digest   `json:"report"`
	// Facts is the content of the node's facts. If Facts is set, there is no report, and Run is the run of these facts.
	Facts tutti.Digest `json:"facts,omitempty"`
	// Environment is only set for facts.
	Environment string `json:"environment,omitempty"`
	// Ordered is true for a run that the server ordered, in mode apply or noop. It is false for a run of `puppet agent`
	// and for a foreign run.
	Ordered bool `json:"ordered,omitempty"`
}
