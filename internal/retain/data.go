package retain

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Exports: of each node, the snapshot keeps the last set of exports, and the last set that no run has published. A
// set that no run has published withdraws exports. After a withdrawal the node must run in full, even if a run with
// tags has published another set since the withdrawal. The snapshot also keeps the last overlay of each node in each
// unfinished job.

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
		delete(l.overlays, overlay{b.Job, b.Node}) // the fold drops the overlay as well
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

// Paused targets: the last event of each target is kept as long as the pause lasts.

func pausedKey(e tutti.Event) string { return "paused " + e.Body.ID() }

func notePaused(l *Ledger, e tutti.Event) { l.last[pausedKey(e)] = e.Seq }

func isPaused(l *Ledger, e tutti.Event) bool { return l.last[pausedKey(e)] == e.Seq }

// Values: the last change of each key that has a value is kept. For a secret, all events with pieces of the secret are
// kept. The fold counts the changes of a run. So all changes since the last claim of a node are kept as well, and with
// each of them the last change of the same key.

func noteValue(l *Ledger, e tutti.Event) {
	v := l.values[e.Body.ID()]
	if v == nil {
		v = &value{sets: map[tutti.NodeName]uint64{}}
		l.values[e.Body.ID()] = v
	}
	secret, is := e.Body.(*tutti.SecretSealed)
	if is && !v.gone && secret.Secret.ID == v.secret {
		v.pieces = append(v.pieces, e.Seq)
		// As long as this change counts for its run, a later event that removes the value is needed as well.
		v.sets[ownerOf(e)] = e.Seq
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
	switch _, unset := e.Body.(*tutti.ValueUnset); {
	case v.last != e.Seq && (v.gone || !slices.Contains(v.pieces, e.Seq)):
		return false
	case !unset && !v.gone:
		return true
	}
	// The value is not there any more. If an earlier change counts, the fold needs what has replaced this change.
	for owner, seq := range v.sets {
		if l.counts(owner, seq) {
			return true
		}
	}
	return false
}

// The method `counts` returns true if a node has changed the value since the node's last claim.
func (l *Ledger) counts(owner tutti.NodeName, seq uint64) bool {
	return owner != "" && seq > l.since[owner]
}
