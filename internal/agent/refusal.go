package agent

import (
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// refusals counts how often the server has refused a result for a reason of its own. Such a reason may pass. Or it is a
// mistake or a damage in the server, which only people can mend. One result must not keep the node from its work.
type refusals struct {
	run   tutti.RunID // the oldest result in the outbox
	count int
	at    time.Time // of the last refusal that counts
}

// hopeless reports whether it cannot help to send a result, or its parts, once more: the server will never take it, or has
// refused it often enough.
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
	if now := time.Now(); now.Sub(r.at) >= retryAfter { // all refusals of one try count as one
		r.count, r.at = r.count+1, now
	}
	return r.count >= a.opts.Refusals
}

// holdOff is how long the next try is put off.
type holdOff struct{ last time.Duration }

// after returns how long to wait after a failed try. If the server does not know whether this machine is the node, it takes
// nothing until a person decides. So the wait grows, and large reports are not sent each second.
func (h *holdOff) after(err error) time.Duration {
	if tutti.CodeOf(err) != tutti.CodeUnauthenticated {
		h.last = 0
		return retryAfter
	}
	h.last = min(max(2*h.last, retryAfter), claimEvery)
	return h.last
}

// refused is sent instead of a result that the server does not take, so that its job does not wait. It says that the
// run failed, because only this node knows how it ended.
func refused(run tutti.RunID, why string) wire.Ended {
	return wire.Ended{Result: over(failed(run, tutti.BecauseMachinery, tutti.Errorf("", "the server refused its result: %s", why)))}
}

// Refused is why the server has not taken the result of the run in dir, empty if it has or was not asked yet. The
// result is in the directory.
func Refused(dir string) string {
	sent, err := readSealed[map[string]string](filepath.Join(dir, sentFile))
	if err != nil {
		return ""
	}
	return sent["error"]
}
