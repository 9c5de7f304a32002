package tutti

import (
	"context"
)

type actorKey struct{}

// WithActor notes in the context who asks, as `operator:NAME`.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorNode is the actor of a node that asks.
func ActorNode(n NodeName) string { return "node:" + string(n) }

// Actor returns who asks, `operator:unknown` if the context does not say it.
func Actor(ctx context.Context) string {
	if a, ok := ctx.Value(actorKey{}).(string); ok {
		return a
	}
	return "operator:unknown"
}
