package retain

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Exports: the last set of each node, and the last one that no run has published: by that something was withdrawn,
// and the node has to run, also if a run with tags has published since. Of overlays the last one of each node in
// each job that goes on.

func exportsKey(n tutti.NodeName) string { return "exports " + string(n) }

func withdrawnKey(n tutti.NodeName) string { return "withdrawn " + string(n) }

func noteExports(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.ExportsSet)
	switch {
	case !b.Overlay:
		l.last[exportsKey(b.Node)] = e.Seq
		if b.Run == "" {
			l.last[withdrawnKey(b.Node)] = e.Seq
		}
		delete(l.overlays, overlay{b.Job, b.Node}) // the fold drops it, too
	case l.lives(b.Job) && !l.finished[b.Job]:
		l.overlays[overlay{b.Job, b.Node}] = e.Seq
	}
}

func needsExports(l *Ledger, e tutti.Event) bool {
	b := e.Body.(*tutti.ExportsSet)
	if b.Overlay {
		return l.overlays[overlay{b.Job, b.Node}] == e.Seq
	}
	return l.last[exportsKey(b.Node)] == e.Seq || l.last[withdrawnKey(b.Node)] == e.Seq
}

// Paused targets: the last word on each, as long as it holds.

func pausedKey(e tutti.Event) string { return "paused " + e.Body.ID() }

func notePaused(l *Ledger, e tutti.Event) { l.last[pausedKey(e)] = e.Seq }

func isPaused(l *Ledger, e tutti.Event) bool { return l.last[pausedKey(e)] == e.Seq }

// Values: the last change of each key, if it has a value; of a secret all that gave it pieces. How much one run may
// change is counted, so the changes since a node's last claim are needed as well;
// whichever of them is not the last of its key must not be that in the fold.

func noteValue(l *Ledger, e tutti.Event) {
	v := l.values[e.Body.ID()]
	if v == nil {
		v = &value{sets: map[tutti.NodeName]uint64{}}
		l.values[e.Body.ID()] = v
	}
	secret, is := e.Body.(*tutti.SecretSealed)
	if is && !v.gone && secret.Secret.ID == v.secret {
		v.pieces = append(v.pieces, e.Seq)
		v.sets[ownerOf(e)] = e.Seq // while it counts for its run, what unset the value is needed, too
		return
	}
	v.last, v.owner, v.gone, v.secret, v.pieces = e.Seq, ownerOf(e), false, "", nil
	if is {
		v.secret = secret.Secret.ID
	}
	if _, unset := e.Body.(*tutti.ValueUnset); !unset {
		v.sets[v.owner] = e.Seq
	}
}

func ownerOf(e tutti.Event) tutti.NodeName {
	switch b := e.Body.(type) {
	case *tutti.ValueSet:
		return b.Owner
	case *tutti.ValueUnset:
		return b.Owner
	case *tutti.SecretSealed:
		return b.Owner
	}
	return ""
}

func needsValue(l *Ledger, e tutti.Event) bool {
	if l.counts(ownerOf(e), e.Seq) {
		return true
	}
	v := l.values[e.Body.ID()]
	if v.gone || v.last != e.Seq && !slices.Contains(v.pieces, e.Seq) {
		return false
	}
	if _, unset := e.Body.(*tutti.ValueUnset); !unset {
		return true
	}
	for owner, seq := range v.sets {
		if l.counts(owner, seq) {
			return true
		}
	}
	return false
}

// counts reports whether a change belongs to what a node's latest run has changed.
func (l *Ledger) counts(owner tutti.NodeName, seq uint64) bool {
	return owner != "" && seq > l.since[owner]
}
