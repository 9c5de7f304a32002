package agent

import "sync"

// The type `unheard` notes a problem: the agent could not store a local run in the outbox, so the server may not
// know this run.
type unheard struct {
	mu  sync.Mutex
	err error // why a local run is not in the outbox; nil after the whole outbox was reported
	all bool  // all ended local runs are in the outbox
}

// The method `heard` notes why a local run is not in the outbox. A nil error means that all ended local runs are in
// the outbox. The method returns true if the server must hear that there is a problem, or that a problem is over.
func (u *unheard) heard(err error) (tell bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		u.all = true
		return u.err != nil
	}
	changed := errorText(err) != errorText(u.err)
	u.err, u.all = err, false
	return changed
}

// The method `none` reports whether all ended local runs are in the outbox.
func (u *unheard) none() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all
}

// The method `told` is called after the whole outbox was reported. Before that, the server does not know all local
// runs. The method reports whether a problem is over.
func (u *unheard) told() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	over := u.err != nil && u.all // if u.all is false, the outbox lacks a local run that has ended in the meantime
	if over {
		u.err = nil
	}
	return over
}

// The method `why` returns the problem.
func (u *unheard) why() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}
