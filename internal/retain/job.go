package retain

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// All events of a job are kept until the job is retired. So people who watch a job see all
// its events. The last run that a node claimed is kept as well.

func noteJob(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.JobStarted)
	l.codes[b.Job] = b.Uses()
}

func noteFinished(l *Ledger, e tutti.Event) {
	job := tutti.JobID(e.Body.ID())
	l.finished[job] = true
	for o := range l.overlays {
		if o.job == job {
			delete(l.overlays, o)
		}
	}
}

func noteRetired(l *Ledger, e tutti.Event) {
	noteFinished(l, e)
	delete(l.codes, tutti.JobID(e.Body.ID()))
}

func (l *Ledger) lives(job tutti.JobID) bool {
	_, ok := l.codes[job]
	return ok
}

func needsJob(l *Ledger, e tutti.Event) bool { return l.lives(tutti.JobID(e.Body.ID())) }

// Tutti stops converging nodes that keep changing each other's data. The events about this are kept as well.

const divergedKey = "diverged"

func noteDiverged(l *Ledger, e tutti.Event) {
	if len(e.Body.(*tutti.ConvergeFinished).Diverging) > 0 {
		l.last[divergedKey] = e.Seq
	}
}

func needsDiverged(l *Ledger, e tutti.Event) bool {
	return needsJob(l, e) || l.last[divergedKey] == e.Seq
}

func noteWanted(l *Ledger, e tutti.Event) {
	o := e.Body.(*tutti.RunWanted).Order
	l.jobs[o.Run], l.nodes[o.Run], l.wanted[o.Run] = o.Job, o.Node, e.Seq
	l.proofs[o.Run] = o.Full() && o.Proof
	if o.Diff {
		l.diffs[o.Run] = true
	}
	switch {
	case o.Full():
		l.applies[o.Run] = true
	case o.Previews():
		l.previews[o.Run] = tutti.Order{Mode: o.Mode, Code: o.Code, Program: o.Program, Environment: o.Environment}
	case o.Mode == tutti.ModeApply:
		l.parts[o.Run] = true
	}
}

func noteClaimed(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.RunClaimed)
	l.latest[b.Node], l.since[b.Node] = b.Run, e.Seq
	if !l.diffs[b.Run] {
		l.own[b.Node] = b.Run
	}
	if l.applies[b.Run] {
		l.applied[b.Node] = b.Run
	}
}

// For each node, the last full run that passed its gate is also kept, because it decides whether the node is good.
// A run that proved that the node is good counts as a full run that passed its gate.

func noteGated(l *Ledger, e tutti.Event) {
	if b := e.Body.(*tutti.RunGated); b.Verdict == tutti.GateGo {
		notePassed(l, e)
		notePart(l, b.Run)
	}
}

// MaxPartial is how many runs with tags are kept for a node since its last full run. A node with MaxPartial of these
// runs is not good.
const MaxPartial = 10

// notePart notes the runs with tags of a node since its last full run, because they also
// decide whether the node is good.
func notePart(l *Ledger, run tutti.RunID) {
	node, wanted := l.nodes[run]
	switch parts := l.partial[node]; {
	case !wanted:
	case l.applies[run]:
		delete(l.partial, node)
	case l.parts[run] && len(parts) < MaxPartial && !slices.Contains(parts, run):
		l.partial[node] = append(parts, run)
	}
}

func notePassed(l *Ledger, e tutti.Event) {
	id := tutti.RunID(e.Body.ID())
	if node, wanted := l.nodes[id]; wanted && l.applies[id] {
		l.passed[node] = id
		delete(l.shown, node)
	}
}

// noteCompiled notes that a proof, a run that tests whether its node is still good, has compiled its catalog. The
// catalog counts until another proof compiles, or until a full run passes its gate or proves that the node is
// good.
func noteCompiled(l *Ledger, e tutti.Event) {
	if id := tutti.RunID(e.Body.ID()); l.proofs[id] {
		l.shown[l.nodes[id]] = id
	}
}

// noteResult notes the latest runs of a node with resources in their reports.
func noteResult(l *Ledger, e tutti.Event) {
	result := e.Body.(*tutti.RunFinished).Result
	node, known := l.nodes[result.Run], needsRun(l, e) // if needsRun is false, the fold has forgotten the run
	noteEnded(l, e)
	if !known {
		return
	}
	keep := func(last map[tutti.NodeName]tutti.RunID) {
		if l.wanted[result.Run] >= l.wanted[last[node]] {
			last[node] = result.Run
		}
	}
	if result.Tells() {
		keep(l.reported)
	}
	if result.Tells() && l.applies[result.Run] {
		keep(l.left)
	}
	noop := !l.applies[result.Run] && !l.parts[result.Run]
	if noop && result.Counts.Changed > 0 && len(l.partial[node]) < MaxPartial {
		l.partial[node] = append(l.partial[node], result.Run)
	}
	if o, previews := l.previews[result.Run]; previews && result.Foretells(o.Mode) {
		l.preview[node] = l.preview[node].Add(PreviewOf(result, o, l.wanted[result.Run]))
	}
}

func noteEnded(l *Ledger, e tutti.Event) { l.ended[tutti.RunID(e.Body.ID())] = true }

func needsRun(l *Ledger, e tutti.Event) bool {
	id := tutti.RunID(e.Body.ID())
	job, wanted := l.jobs[id]
	node := l.nodes[id]
	last := l.latest[node] == id || l.own[node] == id || l.applied[node] == id || l.passed[node] == id || l.reported[node] == id || l.left[node] == id || l.preview[node].Has(id) || l.shown[node] == id
	return wanted && (l.lives(job) || last || slices.Contains(l.partial[node], id) || !l.ended[id])
}
