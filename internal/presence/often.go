package presence

import (
	"time"

	"github.com/tutti-project/tutti"
)

// MayReturn counts that a rival comes back, and reports whether that is not too often.
func (p Nodes) MayReturn(n tutti.NodeName, now time.Time) bool {
	return p.countedIn(n, now, time.Hour, MaxReturns, func(of *seat) *perMinute { return &of.returns })
}

// MayGreet counts a hello of a node, and reports whether that is not too often.
func (p Nodes) MayGreet(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxHellos, func(of *seat) *perMinute { return &of.hellos })
}

// MayComeUnknown counts that somebody says hello with a node's key and none of its tickets.
func (p Nodes) MayComeUnknown(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxUnknown, func(of *seat) *perMinute { return &of.unknown })
}

// MayPin counts that a node stands on something else, and reports whether that is not too often.
func (p Nodes) MayPin(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxPins, func(of *seat) *perMinute { return &of.pins })
}

// MayBox counts that a node takes another key for its secrets; false: it has done so too often.
func (p Nodes) MayBox(n tutti.NodeName, now time.Time) bool {
	return p.used(n, now, 1, MaxBoxes, func(of *seat) *perHour { return &of.boxes })
}

// MayLease counts that how a node stands in an exclusive job has changed.
func (p Nodes) MayLease(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxLeases, func(of *seat) *perMinute { return &of.leases })
}

// maxRefused bounds the entries in a minute of what runs of one node were refused.
const maxRefused = 10

// MayBeRefused counts that a run of a node was refused something new, and reports whether that is not too often.
func (p Nodes) MayBeRefused(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, maxRefused, func(of *seat) *perMinute { return &of.refused })
}

// maxTells bounds the reports of foreign runs in a minute that are kept before the run is: it may not come to that.
const maxTells = 2 * int(time.Minute/ForeignEvery)

// MayTell counts a report of a foreign run, and reports whether that is not too often.
func (p Nodes) MayTell(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, maxTells, func(of *seat) *perMinute { return &of.tells })
}

// Bounds of what a node tells of runs that nobody ordered, within an hour. What is beyond them it tells again later.
const (
	// MaxTold is for the bytes in the log: a result has some KiB, and 258 KiB at most.
	MaxTold = 1 << 20
	// MaxReports is for the bytes of reports: four of the largest ones, or one of a MiB each minute.
	MaxReports = 64 << 20
)

// MayKeepReport takes so many bytes out of what a node may send of reports of foreign runs; false: there is no room.
func (p Nodes) MayKeepReport(n tutti.NodeName, now time.Time, bytes int) bool {
	return p.used(n, now, bytes, MaxReports, func(of *seat) *perHour { return &of.reports })
}

// HasRoomToTell reports whether foreign runs of a node may add so many bytes to the log.
func (p Nodes) HasRoomToTell(n tutti.NodeName, now time.Time, bytes int) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && place.told.fits(now, bytes, MaxTold)
}

// Tells notes that a foreign run of a node adds so many bytes to the log.
func (p Nodes) Tells(n tutti.NodeName, now time.Time, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.told.use(now, bytes)
	}
}

// perHour is how much of something a node has used in the hour that goes on.
type perHour struct {
	began time.Time
	used  int
}

// used uses more of something if there are at most so many in the hour then; false: nothing was used.
func (p Nodes) used(n tutti.NodeName, now time.Time, more, most int, which func(*seat) *perHour) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.nodes[n]
	if of == nil || !which(of).fits(now, more, most) {
		return false
	}
	which(of).use(now, more)
	return true
}

// fits reports whether more may be used.
func (u perHour) fits(now time.Time, more, most int) bool {
	return now.Sub(u.began) > time.Hour && more <= most || u.used+more <= most
}

func (u *perHour) use(now time.Time, more int) {
	if now.Sub(u.began) > time.Hour {
		*u = perHour{began: now}
	}
	u.used += more
}

// perMinute counts what a node does in a minute.
type perMinute struct {
	began time.Time
	count int
}

// counted counts once more, and reports whether there were at most so many in the minute; false: the node is unknown.
func (p Nodes) counted(n tutti.NodeName, now time.Time, most int, which func(*seat) *perMinute) bool {
	return p.countedIn(n, now, time.Minute, most, which)
}

// countedIn is counted in another time than a minute.
func (p Nodes) countedIn(n tutti.NodeName, now time.Time, within time.Duration, most int, which func(*seat) *perMinute) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.nodes[n]
	if of == nil {
		return false
	}
	c := which(of)
	if now.Sub(c.began) > within {
		*c = perMinute{began: now}
	}
	c.count++
	return c.count <= most
}

// MaxHellos bounds how often a node's ticket is exchanged in a minute: each time is an event.
const MaxHellos = 30

// MaxUnknown is how often in a minute somebody comes with a node's key and a ticket that nobody has given, or none: a
// machine that was put back does so once.
const MaxUnknown = 3

// MaxReturns is how often in an hour a machine comes back that another one has taken the node from.
const MaxReturns = 3

// MaxLeases bounds how often the log is told in a minute that a node stands otherwise in an exclusive job. A job needs
// less than ten.
const MaxLeases = 60

// MaxBoxes bounds how often a node takes another key in an hour: each time all that is sealed to it is in the audit trail again.
const MaxBoxes = 3

// MaxPins bounds how often a node says in a minute that it stands on something else: each time is an event.
const MaxPins = 30

// ForeignEvery is how often a node may tell a foreign run: nothing else that a node says without having been asked is kept.
const ForeignEvery = 10 * time.Second
