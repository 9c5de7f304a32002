package tutti

import (
	"time"
)

// Alone is what a node does while its server is away (ADR 0023).
type Alone struct {
	// Safety is the time without the server after which the node makes a safety run. With 0 the node
	// makes no safety runs.
	Safety time.Duration `json:"safety,omitempty"`
	Why    string        `json:"why,omitempty"` // The field Why explains the value of Safety to people.
	// Observed is true if Tutti starts nothing on the node, whether its server is away or not (ADR 0030).
	Observed bool `json:"observed,omitempty"`
}
