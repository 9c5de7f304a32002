package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// mostRefusals limits how many refused requests the command prints in a minute, because every program on the machine
	// can cause them.
	mostRefusals  = 20
	refusalPeriod = time.Minute
	// stolenPeriod limits how often the command says that a code was used before. Other refusals never silence this line.
	stolenPeriod = time.Second
)

// The type `refusals` prints refused requests.
type refusals struct {
	out io.Writer

	mu       sync.Mutex
	until    time.Time // the end of the period
	printed  int       // in this period
	more     int       // refused and not printed
	timer    *time.Timer
	stolenAt time.Time
}

func (r *refusals) add(why error, stolen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if stolen && now.Sub(r.stolenAt) >= stolenPeriod {
		r.stolenAt = now
		r.print(why)
		return
	}
	if !now.Before(r.until) {
		r.tellMore()
		r.until, r.printed = now.Add(refusalPeriod), 0
	}
	if !stolen && r.printed < mostRefusals {
		r.printed++
		r.print(why)
		return
	}
	if r.more++; r.timer == nil {
		r.timer = time.AfterFunc(r.until.Sub(now), r.flush)
	}
}

func (r *refusals) print(why error) { fmt.Fprintln(r.out, "tutti: the page refused a request:", why) }

// tellMore says how many refusals were not printed.
func (r *refusals) tellMore() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if r.more > 0 {
		fmt.Fprintf(r.out, "tutti: the page refused more requests: %d\n", r.more)
		r.more = 0
	}
}

// The function `flush` says at the end of a period, or of the command, how many refusals were not printed.
func (r *refusals) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellMore()
}
