package presence

import (
	"time"

	"github.com/tutti-project/tutti"
)

// MayReturn counts one return of a rival. MayReturn returns false if the limit is exceeded.
func (p Nodes) MayReturn(n tutti.NodeName, now time.Time) bool {
	return p.countedIn(n, now, time.Hour, MaxReturns, func(of *seat) *perMinute { return &of.returns })
}

// MayGreet counts a hello of a node. MayGreet returns false if the limit is exceeded.
func (p Nodes) MayGreet(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxHellos, func(of *seat) *perMinute { return &of.hellos })
}

// MayComeUnknown counts a hello that has a node's key, but an unknown ticket or no ticket. MayComeUnknown
// returns false if the limit is exceeded.
func (p Nodes) MayComeUnknown(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxUnknown, func(of *seat) *perMinute { return &of.unknown })
}

// MayPin counts a change of the CAs and issuer that a node trusts. MayPin returns false if the limit is exceeded.
func (p Nodes) MayPin(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxPins, func(of *seat) *perMinute { return &of.pins })
}

// MayBox counts a change of a node's key for secrets. MayBox returns false if the limit is exceeded.
func (p Nodes) MayBox(n tutti.NodeName, now time.Time) bool {
	return p.used(n, now, 1, MaxBoxes, func(of *seat) *perHour { return &of.boxes })
}

// MayLease counts a change of a node's state in an exclusive job. MayLease returns false if the limit is exceeded.
func (p Nodes) MayLease(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, MaxLeases, func(of *seat) *perMinute { return &of.leases })
}

// maxRefused is how many entries per minute one node may cause about its refused runs.
const maxRefused = 10

// MayBeRefused counts a new refusal of a node's run. MayBeRefused returns false if the limit is exceeded.
func MayBeRefused(p Nodes, n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, maxRefused, func(of *seat) *perMinute { return &of.refused })
}

// maxTells is how many reports of foreign runs one node may send per minute. The server stores a report before it
// looks at the run, so it may store reports of runs that it then ignores.
const maxTells = 2 * int(time.Minute/ForeignEvery)

// MayTell counts a report of a foreign run. MayTell returns false if the limit is exceeded.
func (p Nodes) MayTell(n tutti.NodeName, now time.Time) bool {
	return p.counted(n, now, maxTells, func(of *seat) *perMinute { return &of.tells })
}

// The following constants limit what the server stores of a node's foreign runs within an hour. If a run
// exceeds the limits, the node reports the run again later.
const (
	// MaxTold limits the bytes in the log. The result of a run has a few KiB, at most 258 KiB.
	MaxTold = 1 << 20
	// MaxReports limits the bytes of reports. MaxReports allows four of the largest reports, or one report of a MiB per
	// minute.
	MaxReports = 64 << 20
)

// MayKeepReport counts the bytes of a node's report of a foreign run. If the limit would be exceeded,
// MayKeepReport counts nothing and returns false.
func (p Nodes) MayKeepReport(n tutti.NodeName, now time.Time, bytes int) bool {
	return p.used(n, now, bytes, MaxReports, func(of *seat) *perHour { return &of.reports })
}

// MaxInventory limits the bytes of inventories that a node sends within an hour. maxHolds is how many inventories a node
// sends per minute.
const (
	MaxInventory = 32 << 20
	maxHolds     = 6
)

// MayHold counts the bytes of an inventory. If a limit would be exceeded, MayHold counts no bytes and returns
// false.
func MayHold(p Nodes, n tutti.NodeName, now time.Time, bytes int) bool {
	return p.counted(n, now, maxHolds, func(of *seat) *perMinute { return &of.holds }) &&
		p.used(n, now, bytes, MaxInventory, func(of *seat) *perHour { return &of.held })
}

// HasRoomToTell reports whether foreign runs of a node may add this many bytes to the log.
func (p Nodes) HasRoomToTell(n tutti.NodeName, now time.Time, bytes int) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && place.told.fits(now, bytes, MaxTold)
}

// Tells counts the bytes that a foreign run of a node adds to the log.
func (p Nodes) Tells(n tutti.NodeName, now time.Time, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.told.use(now, bytes)
	}
}

// perHour is how much a node has used of something in the present hour.
type perHour struct {
	began time.Time
	used  int
}

// used adds the number `more` to the amount that a node has used in this hour. If the sum would
// exceed `most`, the function adds nothing and returns false.
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

// fits reports whether the node may use the number `more` in addition.
func (u perHour) fits(now time.Time, more, most int) bool {
	return now.Sub(u.began) > time.Hour && more <= most || u.used+more <= most
}

func (u *perHour) use(now time.Time, more int) {
	if now.Sub(u.began) > time.Hour {
		*u = perHour{began: now}
	}
	u.used += more
}

// perMinute counts how often a node does something in a minute.
type perMinute struct {
	began time.Time
	count int
}

// counted adds one to a node's counter for this minute. It returns false if the counter is then above `most`, or if
// the node is unknown.
func (p Nodes) counted(n tutti.NodeName, now time.Time, most int, which func(*seat) *perMinute) bool {
	return p.countedIn(n, now, time.Minute, most, which)
}

// countedIn does the same as counted, but for a period other than a minute.
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

// MaxHellos is how often a node may exchange its ticket in a minute, because each exchange is an event.
const MaxHellos = 30

// MaxUnknown is how often in a minute a machine may say hello with a node's key and an unknown ticket, or
// without a ticket. A machine that was set back says hello with an unknown ticket once.
const MaxUnknown = 3

// MaxReturns is how often in an hour a machine may come back after another one has become the node.
const MaxReturns = 3

// MaxLeases is how many events per minute a node may cause about its state in an exclusive job.
// A job needs fewer than ten.
const MaxLeases = 60

// MaxBoxes is how often in an hour a node may change its key for secrets. After each change, all pieces that are sealed
// to the node go into the audit trail again.
const MaxBoxes = 3

// MaxPins is how often in a minute a node may report a change of its trust, because each change is an event.
const MaxPins = 30

// ForeignEvery is the shortest time between two reports of foreign runs from one node. These reports are the only
// messages that a node sends without a request and that the server stores.
const ForeignEvery = 10 * time.Second
