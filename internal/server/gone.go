package server

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
)

// goneEvery is the pause between two looks for nodes that are gone.
const goneEvery = time.Minute

// removeGone removes the nodes that have been silent for longer than their group allows. The time before this server began
// to serve does not count, because the server could not hear the nodes then. A paused node stays, because an operator
// knows that it is away.
func (d *decider) removeGone(tx *tx) {
	if tx.Now.Before(d.goneAt) {
		return
	}
	d.goneAt = tx.Now.Add(goneEvery)
	limits := map[tutti.GroupName]time.Duration{}
	for _, g := range tx.Fleet().Groups {
		if g.RemoveAfter > 0 {
			limits[g.Name] = g.RemoveAfter
		}
	}
	if len(limits) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(tx.Registry.Nodes)) {
		n := tx.Registry.Nodes[name]
		limit := time.Duration(0)
		for _, g := range tx.Registry.Groups(n) {
			limit = max(limit, limits[g])
		}
		heard := d.heard(tx, n)
		if limit == 0 || tx.Now.Sub(heard) <= limit || tx.PausedNode(tx.Now, name) != "" {
			continue
		}
		why := fmt.Sprintf("the node was silent for more than %s", limit)
		d.Opts.Logger.Warn("a node is removed", "node", name, "because", why)
		tx.Leave(core.ActorServer, n, why)
		tx.Emit(core.ActorServer, &tutti.NodeRemoved{Node: name})
		d.Leavers = append(d.Leavers, core.Leaver{Key: n.Key, At: tx.Now})
		tx.MayCut()
	}
}

// The method `heard` returns since when a node has been silent.
func (d *decider) heard(tx *tx, n *fold.Node) time.Time {
	heard := d.Presence.Seen(n.Node)
	for _, at := range []time.Time{tx.Since, n.JoinedAt} {
		if at.After(heard) {
			heard = at
		}
	}
	return heard
}
