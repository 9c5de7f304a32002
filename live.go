package tutti

import (
	"time"
)

// Live is something that happens during a run, or a message about a job without a run. Viewers see
// the message, and nobody stores it.
type Live struct {
	Run      RunID     `json:"run,omitempty"`
	Node     NodeName  `json:"node,omitempty"` // set by the server
	At       time.Time `json:"at"`
	Phase    string    `json:"phase,omitempty"`
	Resource string    `json:"resource,omitempty"`
	Done     bool      `json:"done,omitempty"`
	Changed  bool      `json:"changed,omitempty"`
	Failed   bool      `json:"failed,omitempty"`
	Skipped  bool      `json:"skipped,omitempty"`
	Message  string    `json:"message,omitempty"`
	Total    int       `json:"total,omitempty"`
}
