package core

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/denials"
)

// Deny records an attempt that was not allowed, or only counts the attempt, and returns `err`.
func (tx *Tx) Deny(who, what string, err error) error {
	if tx.Looks { // only the writer can record the refusal
		tx.Records = true
		return err
	}
	tx.Core.Opts.Meter.Denied(who)
	if d := denials.Entry(who, what, err); tx.Core.Denials.Admit(tx.Now, d.Who, d.What) {
		tx.Emit(ActorServer, d)
	}
	return err
}

// Denied records or counts a request that the server refused before the request came to the writer.
// The parameter `who` is `address:IP`, `key:KEY` or `operator:NAME`. Denied waits until the entry is
// on disk. If Denied only counts the request, the writer has no work.
func (s *Core) Denied(ctx context.Context, who, what string, cause error) {
	s.Opts.Meter.Denied(who)
	if d := denials.Entry(who, what, cause); s.Denials.Admit(time.Now(), d.Who, d.What) {
		_ = s.Do(context.WithoutCancel(ctx), func(tx *Tx) error {
			tx.Emit(ActorServer, d)
			return nil
		})
	}
}

// Refused calls Denied for a request that the bus refused to a node.
func (s *Core) Refused(ctx context.Context, key tutti.NodeKey, what string) {
	who := "key:" + string(key)
	if node := s.Presence.Named(key); node != "" {
		who = tutti.ActorNode(node)
	}
	s.Denied(ctx, who, what, tutti.Errorf(tutti.CodeRefused, "%s", what))
}
