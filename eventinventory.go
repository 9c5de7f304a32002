package tutti

// inventoryEvents are the kinds of events about what the server holds for queries.
var inventoryEvents = []eventKind{
	{func() Body { return new(NodeInventory) }, ScopeNode, TrailOperators, KeepLast},
	{func() Body { return new(InventoryDropped) }, ScopeNone, TrailOperators, KeepLast},
}

// NodeInventory says which facts and which catalog of a node the server holds from now on (ADR 0036). A part that is
// nil is not held.
type NodeInventory struct {
	Node    NodeName `json:"node"`
	Facts   *Held    `json:"facts,omitempty"`
	Catalog *Held    `json:"catalog,omitempty"`
}

// Kind implements Body.
func (*NodeInventory) Kind() string { return "node.inventory" }

// ID implements Body.
func (b *NodeInventory) ID() string { return string(b.Node) }

// Part returns a part of the inventory, or nil.
func (b *NodeInventory) Part(part InventoryPart) *Held {
	switch {
	case b == nil:
		return nil
	case part == InventoryCatalog:
		return b.Catalog
	}
	return b.Facts
}

// With returns an inventory with another part. The inventory may be nil.
func (b *NodeInventory) With(node NodeName, part InventoryPart, held *Held) *NodeInventory {
	out := &NodeInventory{Node: node}
	if b != nil {
		*out = *b
	}
	if part == InventoryCatalog {
		out.Catalog = held
	} else {
		out.Facts = held
	}
	return out
}

// Size returns how many bytes the parts have.
func (b *NodeInventory) Size() (bytes int64) {
	for _, part := range []InventoryPart{InventoryFacts, InventoryCatalog} {
		if held := b.Part(part); held != nil {
			bytes += held.Size
		}
	}
	return bytes
}

// InventoryDropped says that the server holds a part of no node any more, because the fleet file does not ask for it.
type InventoryDropped struct {
	Part InventoryPart `json:"part"`
}

// Kind implements Body.
func (*InventoryDropped) Kind() string { return "inventory.dropped" }

// ID implements Body.
func (b *InventoryDropped) ID() string { return string(b.Part) }
