package tutti

import (
	"context"
)

type actorKey struct{}

// WithActor says who asks, as `operator:NAME`.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorNode is a node as who asks.
func ActorNode(n NodeName) string { return "node:" + string(n) }

// Actor returns who asks, `operator:unknown` if nobody said.
func Actor(ctx context.Context) string {
	if a, ok := ctx.Value(actorKey{}).(string); ok {
		return a
	}
	return "operator:unknown"
}
