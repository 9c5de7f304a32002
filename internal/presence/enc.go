package presence

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// encs has what the server knows about the calls of the ENC since its start.
type encs struct {
	mu  sync.RWMutex
	now map[tutti.NodeName]api.ENCCalls
}

// Classified notes a call of the ENC for a node. The error is nil if the ENC has answered.
func Classified(p Nodes, n tutti.NodeName, at time.Time, err error) {
	p.encs.mu.Lock()
	defer p.encs.mu.Unlock()
	calls := p.encs.now[n]
	switch {
	case err == nil:
		calls = api.ENCCalls{AnsweredAt: at}
	case calls.Error == "":
		calls.FailsSince = at
		fallthrough
	default:
		calls.Error = err.Error()
	}
	p.encs.now[n] = calls
}

// ENC implements explain.Present.
func (p Nodes) ENC(n tutti.NodeName) api.ENCCalls {
	p.encs.mu.RLock()
	defer p.encs.mu.RUnlock()
	return p.encs.now[n]
}
