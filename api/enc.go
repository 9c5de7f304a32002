package api

import (
	"time"

	"github.com/tutti-project/tutti"
)

// ENCView is what the site's ENC says about a node.
type ENCView struct {
	// Classification is the last good answer. It is nil if there never was one.
	Classification *tutti.Classification `json:"answer,omitempty"`
	ChangedAt      time.Time             `json:"changed_at,omitzero"`
	ENCCalls
}

// ENCCalls says how the calls of the ENC for a node went since the server started.
type ENCCalls struct {
	AnsweredAt time.Time `json:"answered_at,omitzero"` // the last answer
	Error      string    `json:"error,omitempty"`      // of the last call, if it failed
	FailsSince time.Time `json:"fails_since,omitzero"`
}
