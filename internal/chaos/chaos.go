// Package chaos makes schedules of faults for a fleet on lab hosts. After the faults, the
// package judges the fleet by the state of its hosts and its log. The package is pure.
// The same seed, hosts and length always give the same schedule, so that a failure of a
// seed can be repeated.
package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what a fault does.
type Kind string

// Each constant is a kind of fault. Faults of the server happen on the host where the
// server runs.
const (
	Cut         Kind = "cut"          // the host's network is cut, then connected again
	Slow        Kind = "slow"         // packets from the host arrive late or get lost
	Power       Kind = "power"        // the host's power is cut, then the host boots
	KillAgent   Kind = "kill agent"   // kill -9 of the agent; systemd starts it again
	KillServer  Kind = "kill server"  // kill -9 of the server; systemd starts it again
	PauseServer Kind = "pause server" // SIGSTOP to the server, then SIGCONT
)

// Fault is one fault of a schedule.
type Fault struct {
	At    time.Duration // time from the beginning of the schedule to the fault
	For   time.Duration // how long the fault lasts; 0: the fault is over at once
	Kind  Kind
	Host  string
	Delay time.Duration // extra delay of each packet on a slow link
	Loss  float64       // share of lost packets on a slow link, from 0 to less than 1
}

// End returns the time from the beginning of the schedule to the end of the fault.
func (f Fault) End() time.Duration { return f.At + f.For }

// String returns one line for people.
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

// Fleet is the fleet for which a schedule is made.
type Fleet struct {
	Server string   // the host of the server
	Nodes  []string // the hosts of nodes
}

// Most faults last between `shortest` and `short`, some between `long` and `longer`. No fault
// lasts about as long as Deadline, because it would then be random whether the server gives up
// the run. After each fault, the host has no fault for the time `recovery`. After a fault of some
// seconds, it may take as many seconds until a connection is known to work again. After a short
// fault, `recovery` is longer than that.
const (
	shortest = 2 * time.Second
	short    = 12 * time.Second
	long     = 45 * time.Second
	longer   = 50 * time.Second
	recovery = 15 * time.Second
	step     = 100 * time.Millisecond
)

// Schedule returns the faults of a seed in the order in which they begin. All faults are over at
// the time `length`. A host has only one fault at a time.
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

// roll makes the random choices of a schedule. The choices come from splitmix64, which
// gives the same numbers in every version of Go.
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

// The method `fault` chooses a fault of a host. Sometimes a node is away longer than Deadline. Of
// the faults of the server, only a pause lasts that long. If the server's network were cut for so
// long, the server would give up all runs at once, and the test would have nothing left to check.
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
