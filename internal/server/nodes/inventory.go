package nodes

import (
	"bytes"
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/wire"
)

// The function `wantedInventory` returns which parts of a node's inventory the fleet file wants, and what the server
// holds.
func wantedInventory(tx *tx, n *fold.Node) *wire.WantedInventory {
	rules := tx.Fleet().Inventory
	if rules == (tutti.InventoryRules{}) {
		return nil
	}
	out := &wire.WantedInventory{Parts: map[tutti.InventoryPart]tutti.Digest{}}
	for _, part := range []tutti.InventoryPart{tutti.InventoryFacts, tutti.InventoryCatalog} {
		if rules.Wants(part) {
			out.Parts[part] = ""
			if held := n.Inventory.Part(part); held != nil {
				out.Parts[part] = held.State
			}
		}
	}
	return out
}

// The method `inventory` takes the facts or the catalog of a node (ADR 0036). The content replaces the earlier content.
// The server does not read the content before somebody asks for it.
func (s *Nodes) inventory(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, content, err := wire.DecodeInventory(payload)
	if err != nil {
		return nil, err
	}
	in.Left, in.Environment = plain.Words(in.Left), plain.Words(in.Environment)
	wanted := false
	take := func(then func(tx *tx, n *fold.Node) error) error {
		return s.do(ctx, func(tx *tx) error {
			n, err := tx.Node(key)
			if err == nil {
				wanted, err = mayHold(tx, n, in)
			}
			if err != nil || !wanted {
				return err
			}
			return then(tx, n)
		})
	}
	err = take(func(tx *tx, n *fold.Node) error {
		if !presence.MayHold(s.Presence, n.Node, tx.Now, len(content)) {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has sent too much of its inventory: at most 6 times a minute, and %d MiB an hour", n.Node, presence.MaxInventory>>20)
		}
		return nil
	})
	if err != nil || !wanted {
		return nil, err
	}
	if in.Blob != "" {
		if _, err := s.Opts.Blobs.Put(ctx, bytes.Clone(content)); err != nil {
			return nil, tutti.Wrap("", err, "keep the %s of a node", in.Part)
		}
	}
	held := in.Held
	return nil, take(func(tx *tx, n *fold.Node) error {
		tx.Emit(tutti.ActorNode(n.Node), n.Inventory.With(n.Node, in.Part, &held))
		return nil
	})
}

// maxInventoryAhead is how far the clock of a node may be ahead.
const maxInventoryAhead = time.Hour

// mayHold reports whether the server should take a part of an inventory.
func mayHold(tx *tx, n *fold.Node, in wire.Inventory) (bool, error) {
	had := n.Inventory.Part(in.Part)
	switch {
	case !tx.Fleet().Inventory.Wants(in.Part):
		return false, tutti.Errorf(tutti.CodeRefused, "the fleet file does not ask for the %s of nodes", in.Part)
	case in.At.Sub(tx.Now) > maxInventoryAhead:
		return false, tutti.Errorf(tutti.CodeInvalid, "the %s of node %s are from %s, but by the server's clock it is only %s: correct the wrong clock",
			in.Part, n.Node, in.At.UTC().Format(time.RFC3339), tx.Now.UTC().Format(time.RFC3339))
	case had != nil && had.State == in.State:
		return false, nil
	}
	if r := tx.Engine.Runs[in.Run]; r != nil && r.Node != n.Node {
		return false, tx.Deny(tutti.ActorNode(n.Node), "speak for run "+string(in.Run),
			tutti.Errorf(tutti.CodeRefused, "run %s is not a run of node %s", in.Run, n.Node))
	}
	size := in.Size
	if had != nil {
		size -= had.Size
	}
	if size > 0 && tx.Registry.Inventories+size > tutti.MaxInventories {
		return false, tutti.Errorf(tutti.CodeUnavailable, "the inventories of all nodes have %d bytes already, at most %d", tx.Registry.Inventories, int64(tutti.MaxInventories))
	}
	return true, tx.Core.Opts.Space()
}
