package agent

import "sync"

// unheard shows whether the server may lack a local run, because the agent could not store this run in the outbox.
type unheard struct {
	mu  sync.Mutex
	err error // why a local run is not in the outbox; nil after the whole outbox was reported
	all bool  // all ended local runs are in the outbox
}

// heard notes why a local run is not in the outbox. A nil error means that all ended local runs are in the outbox. The
// method reports whether the server must hear of a problem or of its end.
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
	over := u.err != nil && u.all // otherwise another local run has ended since
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
