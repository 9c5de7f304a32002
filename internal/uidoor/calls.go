package uidoor

// The type `passed` says how the door passes a call on.
type passed struct {
	endless bool // the answer is a stream
}

// calls are the calls that the door passes on. They only read. The door refuses every other call, so a stolen secret
// cannot change anything. A test compares this table with the table of the server's calls.
var calls = map[string]passed{
	"access/explain":   {},
	"data/effect":      {},
	"data/page":        {},
	"explain/node":     {},
	"explain/resource": {},
	"explain/value":    {},
	"graph":            {},
	"graph/picture":    {},
	"jobs/changes":     {},
	"jobs/list":        {},
	"nodes/list":       {},
	"nodes/show":       {},
	"pauses/list":      {},
	"runs/record":      {},
	"runs/report":      {},

	"audit/read":      {endless: true},
	"fleet/watch":     {endless: true},
	"inventory/query": {endless: true},
	"jobs/watch":      {endless: true},
	"runs/log":        {endless: true},
}

// Calls returns the names of the calls that the door passes on. The value says whether the answer is a stream.
func Calls() map[string]bool {
	out := map[string]bool{}
	for name, p := range calls {
		out[name] = p.endless
	}
	return out
}
