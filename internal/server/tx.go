package server

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/writer"
	"github.com/tutti-project/tutti/wire"
)

const actorServer = writer.Actor

// tx is a transaction of the writer, or a look at a version for readers, with what the server's commands need.
type tx struct {
	*writer.Tx
	server *Server
	ticket tutti.Digest // of the message that the command serves
	notNow tutti.Code   // answers it if it comes from a machine that is not the node, see refusalOf
}

// of returns a transaction for a message.
func (s *Server) of(ctx context.Context, t *writer.Tx) *tx {
	return &tx{Tx: t, server: s, ticket: wire.TicketOf(ctx), notNow: refusalOf(ctx)}
}

// do hands work to the writer, see writer.Writer.Do, if the caller is still in.
func (s *Server) do(ctx context.Context, work func(tx *tx) error) error {
	return s.writer.Do(ctx, func(t *writer.Tx) error {
		if err := stillIn(ctx, t.State); err != nil {
			return err
		}
		return work(s.of(ctx, t))
	})
}
