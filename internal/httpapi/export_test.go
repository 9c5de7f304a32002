package httpapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
)

// Routes returns the names of the calls that need an operator, sorted.
func (s Services) Routes() []string { return slices.Sorted(maps.Keys(s.routes())) }

// Limits returns the largest size of the body of each call, in bytes.
func (s Services) Limits() map[string]int64 {
	out := map[string]int64{}
	for name, rt := range s.routes() {
		out[name] = rt.limit
	}
	return out
}

// These constants limit the cost of operators' requests.
const (
	SmallBody  = smallBody
	OwnBodies  = ownBodies
	AllBodies  = allBodies
	OwnStreams = ownStreams
	OwnCalls   = ownCalls
)

// Budget is the capacity that is left for requests.
type Budget struct{ *budget }

// NewBudget returns a budget of which nothing is used.
func NewBudget() Budget { return Budget{newBudget()} }

// Take waits until there is room for a body.
func (b Budget) Take(ctx context.Context, who string, size int64) (release func(), err error) {
	return b.take(ctx, who, size)
}

// Call waits until the server may handle the request.
func (b Budget) Call(ctx context.Context, who string) (leave func(), err error) {
	return b.call(ctx, who)
}

// Read reads a body of any size.
func (b Budget) Read(ctx context.Context, w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	return b.read(ctx, w, r, allBodies)
}

// Known returns the number of operators who have a share.
func (b Budget) Known() int { return len(b.own) }
