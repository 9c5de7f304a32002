package tutti

import (
	"context"
)

type actorKey struct{}

// WithActor stores the name of the caller in the context, as `operator:NAME`.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorNode returns the actor name of a node, `node:NAME`.
func ActorNode(n NodeName) string { return "node:" + string(n) }

// Actor returns the caller's name from the context. If the context has no caller, Actor returns
// `operator:unknown`.
func Actor(ctx context.Context) string {
	if a, ok := ctx.Value(actorKey{}).(string); ok {
		return a
	}
	return "operator:unknown"
}
