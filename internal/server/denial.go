package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/denials"
)

// deny records an attempt without a grant, or counts it, and returns its error.
func (tx *tx) deny(who, what string, err error) error {
	if tx.Looks { // it is the writer that records it
		tx.Records = true
		return err
	}
	if d := denials.Entry(who, what, err); tx.server.denials.Admit(tx.Now, d.Who, d.What) {
		tx.Emit(actorServer, d)
	}
	return err
}

// Denied records what was refused before it came to the writer, or counts it: who is
// `address:IP`, `key:KEY` or `operator:NAME`. It waits until an entry is on disk. What is
// counted does not cost the writer anything.
func (s *Server) Denied(ctx context.Context, who, what string, cause error) {
	if d := denials.Entry(who, what, cause); s.denials.Admit(time.Now(), d.Who, d.What) {
		_ = s.do(context.WithoutCancel(ctx), func(tx *tx) error {
			tx.Emit(actorServer, d)
			return nil
		})
	}
}

// Refused is Denied of what the bus refused on a node's behalf.
func (s *Server) Refused(ctx context.Context, key tutti.NodeKey, what string) {
	who := "key:" + string(key)
	if node := s.presence.Named(key); node != "" {
		who = tutti.ActorNode(node)
	}
	s.Denied(ctx, who, what, tutti.Errorf(tutti.CodeRefused, "%s", what))
}
