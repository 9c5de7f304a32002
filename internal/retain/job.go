package retain

import "github.com/tutti-project/tutti"

// Jobs stay until they are retired, with all that happened in them: whoever
// watches one is told the whole. The last run that a node claimed stays, too.

func noteJob(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.JobStarted)
	l.codes[b.Job] = b.Code
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

func noteWanted(l *Ledger, e tutti.Event) {
	o := e.Body.(*tutti.RunWanted).Order
	l.jobs[o.Run], l.nodes[o.Run] = o.Job, o.Node
}

func noteClaimed(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.RunClaimed)
	l.latest[b.Node], l.since[b.Node] = b.Run, e.Seq
}

func noteEnded(l *Ledger, e tutti.Event) { l.ended[tutti.RunID(e.Body.ID())] = true }

func needsRun(l *Ledger, e tutti.Event) bool {
	id := tutti.RunID(e.Body.ID())
	job, wanted := l.jobs[id]
	return wanted && (l.lives(job) || l.latest[l.nodes[id]] == id || !l.ended[id])
}
