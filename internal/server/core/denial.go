package core

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/denials"
)

// Deny records an attempt without a grant, or counts it, and returns its error.
func (tx *Tx) Deny(who, what string, err error) error {
	if tx.Looks { // it is the writer that records it
		tx.Records = true
		return err
	}
	if d := denials.Entry(who, what, err); tx.Core.Denials.Admit(tx.Now, d.Who, d.What) {
		tx.Emit(ActorServer, d)
	}
	return err
}

// Denied records what was refused before it came to the writer, or counts it: who is
// `address:IP`, `key:KEY` or `operator:NAME`. It waits until an entry is on disk. What is
// counted does not cost the writer anything.
func (s *Core) Denied(ctx context.Context, who, what string, cause error) {
	if d := denials.Entry(who, what, cause); s.Denials.Admit(time.Now(), d.Who, d.What) {
		_ = s.Do(context.WithoutCancel(ctx), func(tx *Tx) error {
			tx.Emit(ActorServer, d)
			return nil
		})
	}
}

// Refused is Denied of what the bus refused on a node's behalf.
func (s *Core) Refused(ctx context.Context, key tutti.NodeKey, what string) {
	who := "key:" + string(key)
	if node := s.Presence.Named(key); node != "" {
		who = tutti.ActorNode(node)
	}
	s.Denied(ctx, who, what, tutti.Errorf(tutti.CodeRefused, "%s", what))
}
