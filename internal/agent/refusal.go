package agent

import (
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// refusals counts how often the server has refused a result because of a problem in the server
// itself. The problem may pass. If the problem stays, only people can repair it. One refused result
// must not stop the node's work.
type refusals struct {
	run   tutti.RunID // the oldest result in the outbox
	count int
	at    time.Time // the time of the last refusal that counts
}

// The method `hopeless` reports whether it is useless to send a result or its parts again. Sending
// is useless if the server will never take the result, or has refused it often enough.
func (a *Agent) hopeless(run tutti.RunID, err error) bool {
	if final(err) {
		return true
	}
	switch tutti.CodeOf(err) {
	case tutti.CodeInternal, tutti.CodeConflict, tutti.CodeDamaged:
	default: // the server is away, or does not know this node
		return false
	}
	r := &a.refusals
	if r.run != run {
		*r = refusals{run: run}
	}
	if now := time.Now(); now.Sub(r.at) >= retryAfter { // the server may refuse several requests of one try, but the try counts only once
		r.count, r.at = r.count+1, now
	}
	return r.count >= a.opts.Refusals
}

// holdOff is the delay before the next try.
type holdOff struct{ last time.Duration }

// The method `after` returns how long to wait after a failed try. If the server does not know whether this machine is
// the node, the server accepts nothing. A person must decide first. The wait therefore grows, and the agent does not
// send large reports each second.
func (h *holdOff) after(err error) time.Duration {
	if tutti.CodeOf(err) != tutti.CodeUnauthenticated {
		h.last = 0
		return retryAfter
	}
	h.last = min(max(2*h.last, retryAfter), claimEvery)
	return h.last
}

// The function `refused` returns the result that the agent sends in place of a refused result, so
// that the job does not wait. The sent result says that the run failed, because only this node
// knows how the run ended.
func refused(run tutti.RunID, why string) wire.Ended {
	return wire.Ended{Result: over(failed(run, tutti.BecauseMachinery, tutti.Errorf("", "the server refused its result: %s", why)))}
}

// Refused returns the reason why the server has refused the result of the run in dir. Refused
// returns an empty string if the server has taken the result or has not got it yet. A refused
// result stays in the directory.
func Refused(dir string) string {
	sent, err := readSealed[map[string]string](filepath.Join(dir, sentFile))
	if err != nil {
		return ""
	}
	return sent["error"]
}
