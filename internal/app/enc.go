package app

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti/internal/classify"
	"github.com/tutti-project/tutti/internal/server"
)

// classify asks the site's ENC about the nodes, until ctx ends. If the server has no ENC any more, the nodes lose the
// answers that they still have. An error of the script does not end the server.
func (s *Server) classify(ctx context.Context, group *errgroup.Group, core *server.Server) {
	group.Go(func() error {
		select {
		case <-core.Ready():
		case <-ctx.Done():
			return nil
		}
		if s.enc != nil {
			(&classify.Keeper{Source: core.ENC(), Config: *s.enc, Logger: s.opts.Logger}).Run(ctx)
			return nil
		}
		if err := classify.Forget(ctx, core.ENC()); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("the answers of the former ENC are still there; the server tries again when it starts", "error", err)
		}
		return nil
	})
}

// The method `match` decides which nodes are in groups with `where`, until ctx ends.
func (s *Server) match(ctx context.Context, group *errgroup.Group, core *server.Server) {
	group.Go(func() error {
		select {
		case <-core.Ready():
			core.Matches().Run(ctx)
		case <-ctx.Done():
		}
		return nil
	})
}
