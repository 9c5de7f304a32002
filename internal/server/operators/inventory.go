package operators

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server/core"
)

// dropInventory lets go the facts and catalogs for which the fleet file does not ask any more (ADR 0036).
func (tx *tx) dropInventory(rules tutti.InventoryRules) {
	for _, part := range []tutti.InventoryPart{tutti.InventoryFacts, tutti.InventoryCatalog} {
		if !rules.Wants(part) && tx.Registry.Holds(part) {
			tx.Emit(core.ActorServer, &tutti.InventoryDropped{Part: part})
		}
	}
}
