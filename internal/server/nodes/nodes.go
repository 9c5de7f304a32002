// Package nodes handles the messages of nodes. The package decides which machine is the node, gives orders,
// answers the questions of compiles, and takes publications and results. A node may lie in every field.
package nodes

import (
	"context"
	"sync/atomic"

	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/writer"
)

// The type `base` is the common part of all operations of nodes.
type base struct {
	*core.Core
	files    atomic.Pointer[codeFiles]
	keys     keyLists
	saidBack atomic.Int64 // when the server last logged that a node had seen more events than the server has, in Unix seconds
}

// The type `runs` implements the operations that belong to one run.
type runs struct{ *base }

// Nodes handles messages of nodes with Handle, and enrolments with Enrol.
type Nodes struct {
	*base
	runs
}

// New returns a handler for nodes.
func New(of *core.Core) *Nodes {
	b := &base{Core: of}
	return &Nodes{base: b, runs: runs{b}}
}

// tx is a transaction of a node's message.
type tx struct{ *core.Tx }

// The method `do` calls core.Core.Do.
func (s *base) do(ctx context.Context, work func(tx *tx) error) error {
	return s.Do(ctx, func(t *core.Tx) error { return work(&tx{t}) })
}

// The method `looks` returns a transaction that only reads, in a readers' version of the fold.
func (s *base) looks(ctx context.Context, v explain.View) *tx {
	return &tx{s.Of(ctx, &writer.Tx{State: v.State, Now: v.Now, Looks: true})}
}
