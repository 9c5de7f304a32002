package httpapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
)

// Routes are the calls that take an operator, sorted.
func (s Services) Routes() []string { return slices.Sorted(maps.Keys(s.routes())) }

// Limits are how many bytes the body of each call may have.
func (s Services) Limits() map[string]int64 {
	out := map[string]int64{}
	for name, rt := range s.routes() {
		out[name] = rt.limit
	}
	return out
}

// The bounds of what the requests of operators cost.
const (
	SmallBody  = smallBody
	OwnBodies  = ownBodies
	AllBodies  = allBodies
	OwnStreams = ownStreams
	OwnCalls   = ownCalls
)

// Budget is what is left for requests.
type Budget struct{ *budget }

// NewBudget returns a whole one.
func NewBudget() Budget { return Budget{newBudget()} }

// Take waits for room for a body.
func (b Budget) Take(ctx context.Context, who string, size int64) (release func(), err error) {
	return b.take(ctx, who, size)
}

// Call waits until a request may be worked on.
func (b Budget) Call(ctx context.Context, who string) (leave func(), err error) {
	return b.call(ctx, who)
}

// Read reads a body of any size.
func (b Budget) Read(ctx context.Context, w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	return b.read(ctx, w, r, allBodies)
}

// Known are those who have a share.
func (b Budget) Known() int { return len(b.own) }
