package presence

import (
	"time"

	"github.com/tutti-project/tutti"
)

// MayReturn counts that a rival comes back; false: too often.
func (p Nodes) MayReturn(n tutti.NodeName, now time.Time) bool {
	return p.countedIn(n, now, time.Hour, MaxReturns, func(of *seat) *perMinute { return &of.returns })
}

// MayGreet counts a hello of a node; false: too often.
func (p Nodes) MayGreet(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxHellos, func(of *seat) *perMinute { return &of.hellos })
}

// MayComeUnknown counts a hello with a node's key and none of its tickets; false: too often.
func (p Nodes) MayComeUnknown(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxUnknown, func(of *seat) *perMinute { return &of.unknown })
}

// MayPin counts a change of the CAs and issuer that a node trusts; false: too often.
func (p Nodes) MayPin(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxPins, func(of *seat) *perMinute { return &of.pins })
}

// MayBox counts that a node takes another key for its secrets; false: too often.
func (p Nodes) MayBox(n tutti.NodeName, now time.Time) bool {
	return p.used(n, now, 1, MaxBoxes, func(of *seat) *perHour { return &of.boxes })
}

// MayLease counts a change of a node's state in an exclusive job; false: too often.
func (p Nodes) MayLease(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxLeases, func(of *seat) *perMinute { return &of.leases })
}

// maxRefused bounds the entries of one node's refused runs in a minute.
const maxRefused = 10

// MayBeRefused counts that a run of a node was refused something new; false: too often.
func (p Nodes) MayBeRefused(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, maxRefused, func(of *seat) *perMinute { return &of.refused })
}

// maxTells bounds the reports of foreign runs in a minute. A report is kept before its run, and the run may not be kept.
const maxTells = 2 * int(time.Minute/ForeignEvery)

// MayTell counts a report of a foreign run; false: too often.
func (p Nodes) MayTell(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, maxTells, func(of *seat) *perMinute { return &of.tells })
}

// Bounds of what a node tells of foreign runs within an hour. Beyond them, the node tells it again later.
const (
	// MaxTold bounds the bytes in the log: a result has some KiB, and 258 KiB at most.
	MaxTold = 1 << 20
	// MaxReports bounds the bytes of reports: four of the largest ones, or one of a MiB each minute.
	MaxReports = 64 << 20
)

// MayKeepReport uses up bytes of what a node may send of reports of foreign runs; false: there is no room.
func (p Nodes) MayKeepReport(n tutti.NodeName, now time.Time, bytes int) bool {
	return p.used(n, now, bytes, MaxReports, func(of *seat) *perHour { return &of.reports })
}

// HasRoomToTell reports whether foreign runs of a node may add this many bytes to the log.
func (p Nodes) HasRoomToTell(n tutti.NodeName, now time.Time, bytes int) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && place.told.fits(now, bytes, MaxTold)
}

// Tells notes that a foreign run of a node adds this many bytes to the log.
func (p Nodes) Tells(n tutti.NodeName, now time.Time, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.told.use(now, bytes)
	}
}

// perHour is how much of something a node has used in the present hour.
type perHour struct {
	began time.Time
	used  int
}

// used uses more of something, if the hour's use is then at most most; false: nothing was used.
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

// counted counts one more, and reports whether there were at most most in the minute; false also if the node is unknown.
func (p Nodes) counted(n tutti.NodeName, now time.Time, most int, which func(*seat) *perMinute) bool {
	return p.countedIn(n, now, time.Minute, most, which)
}

// countedIn is counted with another period than a minute.
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

// MaxUnknown is how often in a minute a machine may come with a node's key and an unknown ticket, or none. A
// machine that was put back does so once.
const MaxUnknown = 3

// MaxReturns is how often in an hour a machine may come back after another one has become the node.
const MaxReturns = 3

// MaxLeases bounds the events in a minute about a node's state in an exclusive job. A job needs
// less than ten.
const MaxLeases = 60

// MaxBoxes bounds how often in an hour a node takes another key: each time all that is sealed to it goes into the audit trail again.
const MaxBoxes = 3

// MaxPins bounds how often in a minute a node reports a change of its trust: each time is an event.
const MaxPins = 30

// ForeignEvery is how often a node may tell a foreign run. Nothing else that a node says without being asked is kept.
const ForeignEvery = 10 * time.Second
