package tutti

import (
	"time"
)

// Alone is what a node does while its server is away (ADR 0023).
type Alone struct {
	// Safety is after how long it makes a safety run; 0: it makes none.
	Safety time.Duration `json:"safety,omitempty"`
	Why    string        `json:"why,omitempty"` // it makes none, or that one
}
