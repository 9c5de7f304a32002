package past

import "github.com/tutti-project/tutti"

// inventories has the inventory that each node has at the end of the log. The zero value has none.
type inventories struct {
	of   map[tutti.NodeName]*tutti.NodeInventory
	keys map[tutti.NodeName]tutti.NodeKey
}

// The method `add` follows an event in the same way as the fold does.
func (i *inventories) add(e tutti.Event) {
	if i.of == nil {
		i.of, i.keys = map[tutti.NodeName]*tutti.NodeInventory{}, map[tutti.NodeName]tutti.NodeKey{}
	}
	switch b := e.Body.(type) {
	case *tutti.NodeInventory:
		i.of[b.Node] = b
	case *tutti.NodeRemoved:
		delete(i.of, b.Node)
	case *tutti.NodeEnrolled:
		if i.keys[b.Node] != b.Key { // another machine
			delete(i.of, b.Node)
		}
		i.keys[b.Node] = b.Key
	case *tutti.InventoryDropped:
		for node, held := range i.of {
			i.of[node] = held.With(node, b.Part, nil)
		}
	}
}

// The method `name` adds the content that the inventories need.
func (i *inventories) name(c *content) {
	for node, held := range i.of {
		for _, part := range []tutti.InventoryPart{tutti.InventoryFacts, tutti.InventoryCatalog} {
			if of := held.Part(part); of != nil {
				c.named[of.Blob], c.needed[of.Blob] = true, "the "+string(part)+" of "+string(node)
			}
		}
	}
}
