package tutti

import (
	"time"
)

// Live is something that happens inside a run, or without one to its job (then
// it is a Message alone); it is shown and never kept.
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
