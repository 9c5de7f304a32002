package agent

import (
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// refusals count how often the server has refused a result for a reason of its own. Such a reason passes, or it is a mistake
// in the server, or a damage there, that only people can mend. One result must not keep the node from its work for that.
type refusals struct {
	run   tutti.RunID // the oldest result in the outbox
	count int
	at    time.Time // of the last one that counts
}

// hopeless reports whether to send a result, or what goes along with it, once more cannot help: the server will never take
// it, or has refused it often enough.
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
	if now := time.Now(); now.Sub(r.at) >= retryAfter { // what one try meets is one refusal
		r.count, r.at = r.count+1, now
	}
	return r.count >= a.opts.Refusals
}

// holdOff is how long a try is put off.
type holdOff struct{ last time.Duration }

// after returns how long to wait behind a try that came to nothing. A server that does not know whether this machine is the node
// takes nothing until a person has said so: results with large reports are not sent each second.
func (h *holdOff) after(err error) time.Duration {
	if tutti.CodeOf(err) != tutti.CodeUnauthenticated {
		h.last = 0
		return retryAfter
	}
	h.last = min(max(2*h.last, retryAfter), claimEvery)
	return h.last
}

// refused is sent instead of a result that the server does not take, so that its job does not wait for it. The run
// failed: nobody but this node knows how it ended.
func refused(run tutti.RunID, why string) wire.Ended {
	return wire.Ended{Result: over(failed(run, tutti.BecauseMachinery, tutti.Errorf("", "the server refused its result: %s", why)))}
}

// Refused is why the server has not taken the result of the run of a directory, empty: it has, or was not asked yet.
// The result is in the directory.
func Refused(dir string) string {
	sent, err := readSealed[map[string]string](filepath.Join(dir, sentFile))
	if err != nil {
		return ""
	}
	return sent["error"]
}
