package fold

import "github.com/tutti-project/tutti"

// The method `applyInventory` notes which facts and catalogs the server holds.
func (r *Registry) applyInventory(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.NodeInventory:
		if n := r.Nodes[b.Node]; n != nil {
			r.hold(n, b)
		}
	case *tutti.InventoryDropped:
		for _, n := range r.Nodes {
			if n.Inventory.Part(b.Part) != nil {
				r.hold(n, n.Inventory.With(n.Node, b.Part, nil))
			}
		}
	}
}

func (r *Registry) hold(n *Node, inventory *tutti.NodeInventory) {
	r.Inventories += inventory.Size() - n.Inventory.Size()
	n.Inventory = inventory
}

// Holds reports whether the server holds a part of some node.
func (r *Registry) Holds(part tutti.InventoryPart) bool {
	for _, n := range r.Nodes {
		if n.Inventory.Part(part) != nil {
			return true
		}
	}
	return false
}
