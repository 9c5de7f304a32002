package api

import (
	"context"

	"github.com/tutti-project/tutti"
)

// CodeHistory shows and prunes the earlier code of environments.
type CodeHistory interface {
	// ListCode returns the codes that the server keeps, by environment, and in each environment the latest push first. If the
	// query names no environment, ListCode returns the codes of all environments.
	ListCode(ctx context.Context, in CodeQuery) ([]CodeEntry, error)
	// GetCode returns the signed manifest of one code.
	GetCode(ctx context.Context, in CodeQuery) (CodeKept, error)
	// RetireCode lets the server forget earlier codes of an environment, or the environment. The error is CodeConflict if the
	// environment is still used.
	RetireCode(ctx context.Context, in RetireCode) (tutti.CodeRetired, error)
}

// CodeEntry is one code of an environment.
type CodeEntry struct {
	Environment string `json:"environment"`
	CodeVersion
	State   CodeState `json:"state,omitempty"`
	Counter uint64    `json:"counter,omitempty"`
	// Nodes is the number of nodes whose last run in mode apply used the code.
	Nodes int `json:"nodes"`
}

// CodeState says what nodes do with a code.
type CodeState string

// The states. An earlier code has an empty state.
const (
	CodeCurrent  CodeState = "current"  // the last push; nodes run with it
	CodeHeld     CodeState = "held"     // the last push, which waits for its release
	CodeReleased CodeState = "released" // nodes run with it while the last push is held
)

// CodeKept is a code with everything that is needed to check it and to push it again.
type CodeKept struct {
	CodeEntry
	tutti.SignedCode
}

// RetireCode names code that the server may forget: all but the last Keep codes of an environment, or the whole
// environment. The server always keeps the code that nodes or jobs use.
type RetireCode struct {
	Environment string `json:"environment"`
	Keep        int    `json:"keep,omitempty"`
	Remove      bool   `json:"remove,omitempty"` // remove the environment
	DryRun      bool   `json:"dry_run,omitempty"`
}
