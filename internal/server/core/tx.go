package core

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/writer"
	"github.com/tutti-project/tutti/wire"
)

// ActorServer is the actor of the server's own events.
const ActorServer = writer.Actor

// Tx is a transaction of the writer, or a read-only view of a version of the fold. Tx gives the server's commands
// access to the core.
type Tx struct {
	*writer.Tx
	Core   *Core
	ticket tutti.Digest // ticket of the message that the command serves
	notNow tutti.Code   // the code of the refusal if the machine is not the node, see refusalOf
}

// Of returns a transaction for a message.
func (s *Core) Of(ctx context.Context, t *writer.Tx) *Tx {
	return &Tx{Tx: t, Core: s, ticket: wire.TicketOf(ctx), notNow: refusalOf(ctx)}
}

// Do gives work to the writer, see writer.Writer.Do. Do refuses a caller who has lost access.
func (s *Core) Do(ctx context.Context, work func(tx *Tx) error) error {
	return s.Writer.Do(ctx, func(t *writer.Tx) error {
		if err := stillIn(ctx, t.State); err != nil {
			return err
		}
		return work(s.Of(ctx, t))
	})
}
