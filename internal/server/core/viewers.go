package core

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Viewers counts who follows jobs that nobody needs without a viewer. The type is safe for concurrent use. A new server
// knows no viewers.
type Viewers struct {
	mu sync.Mutex
	of map[tutti.JobID]*viewing
}

type viewing struct {
	viewers int
	left    time.Time // when the last viewer left; it counts only without viewers
}

// Enter notes that somebody follows a job, until the call of `leave`.
func (v *Viewers) Enter(job tutti.JobID) (leave func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[tutti.JobID]*viewing{}
	}
	of := v.of[job]
	if of == nil {
		of = &viewing{}
		v.of[job] = of
	}
	of.viewers++
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if of.viewers--; of.viewers == 0 {
			of.left = time.Now()
		}
	}
}

// Abandoned returns the jobs whose last viewer left before this time, and forgets these jobs.
func (v *Viewers) Abandoned(before time.Time) []tutti.JobID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []tutti.JobID
	for job, of := range v.of {
		if of.viewers == 0 && of.left.Before(before) {
			out = append(out, job)
			delete(v.of, job)
		}
	}
	return out
}
