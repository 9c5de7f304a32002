// Package chaos makes schedules of faults for a fleet on lab hosts, and judges
// what the fleet went through by what its hosts and its log have afterwards. It
// is pure: the same seed, hosts and length give the same schedule for ever, so
// that who has seen a seed fail can have it fail again.
package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what a fault does.
type Kind string

// The kinds of faults. Those of the server befall the host that has it.
const (
	Cut         Kind = "cut"          // the host's network is parted, then joined again
	Slow        Kind = "slow"         // its packets come late, or not at all
	Power       Kind = "power"        // its power is cut, then it boots
	KillAgent   Kind = "kill agent"   // kill -9; systemd starts it again
	KillServer  Kind = "kill server"  // likewise
	PauseServer Kind = "pause server" // SIGSTOP, then SIGCONT
)

// Fault is one fault of a schedule.
type Fault struct {
	At    time.Duration // since the schedule began
	For   time.Duration // 0: it is over at once
	Kind  Kind
	Host  string
	Delay time.Duration // of a slow link
	Loss  float64       // of a slow link, from 0 to less than 1
}

// End is when the fault is over, since the schedule began.
func (f Fault) End() time.Duration { return f.At + f.For }

// String is one line for people.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1fs  %s on %s", f.At.Seconds(), f.Kind, f.Host)
	if f.For > 0 {
		fmt.Fprintf(&b, " for %.1fs", f.For.Seconds())
	}
	if f.Kind == Slow {
		fmt.Fprintf(&b, " (%s, %.0f%% lost)", f.Delay, f.Loss*100)
	}
	return b.String()
}

// Fleet is what a schedule is made for.
type Fleet struct {
	Server string   // the host of the server
	Nodes  []string // the hosts of nodes
}

// How long faults last, and how long they leave a host alone. None lasts about
// as long as the server's deadline of silence: what follows is then anybody's.
// One that is shorter gives a connection time to notice that it works again, which
// takes as long as the fault itself did. See Deadline.
const (
	shortest = 2 * time.Second
	short    = 12 * time.Second
	long     = 45 * time.Second
	longer   = 50 * time.Second
	recovery = 15 * time.Second
	step     = 100 * time.Millisecond
)

// Schedule returns the faults of a seed in the order in which they begin; all of
// them are over when length is. A host has one at a time.
func Schedule(seed uint64, fleet Fleet, length time.Duration) []Fault {
	r := &roll{seed}
	hosts := append([]string{fleet.Server}, slices.Sorted(slices.Values(fleet.Nodes))...)
	free := map[string]time.Duration{}
	var out []Fault
	for at := r.between(time.Second, 3*time.Second); at < length; at += r.between(2*time.Second, 8*time.Second) {
		host := hosts[r.under(len(hosts))]
		f := r.fault(host, host == fleet.Server)
		f.At = at
		if free[host] > at || f.End() > length {
			continue
		}
		free[host] = f.End() + recovery
		out = append(out, f)
	}
	return out
}

// roll makes the choices of a schedule: splitmix64, which is the same in every
// version of everything.
type roll struct{ state uint64 }

func (r *roll) under(n int) int {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

func (r *roll) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.under(int((to-from)/step)+1))*step
}

// fault chooses what befalls a host. Nodes are away for longer than the deadline
// now and then, the server only by a pause: cut off for so long, it would rightly
// give up everything at once, and nothing would be left to look at.
func (r *roll) fault(host string, server bool) Fault {
	f := Fault{Host: host, For: r.between(shortest, short)}
	patient := r.under(4) == 0
	if server {
		f.Kind = []Kind{Cut, Slow, Power, KillServer, PauseServer}[r.under(5)]
		patient = patient && f.Kind == PauseServer
	} else {
		f.Kind = []Kind{Cut, Slow, Power, KillAgent}[r.under(4)]
		patient = patient && (f.Kind == Cut || f.Kind == Power)
	}
	switch {
	case patient:
		f.For = r.between(long, longer)
	case f.Kind == KillAgent || f.Kind == KillServer:
		f.For = 0
	case f.Kind == Slow:
		f.Delay, f.Loss = r.between(step, 4*step), float64(1+r.under(5))/100
	}
	return f
}
