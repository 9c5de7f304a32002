package wire

import "github.com/tutti-project/tutti"

// Compile says that the Puppet Server of the sending node compiles a catalog for a
// node. The sending node needs the grant `compile`.
type Compile struct {
	Run tutti.RunID    `json:"run"` // the transaction's uuid; of no run of ours if others started it
	For tutti.NodeName `json:"for"`
}

// Compiling is the answer.
type Compiling struct {
	// Node: For is a node of the fleet. If it is not, the server answers no question for it.
	Node bool `json:"node"`
	// Recorded: it is a run of ours, which cannot go on without a CompiledFor.
	Recorded bool `json:"recorded"`
}

// CompiledFor is what such a compile read and exports, sent before the node gets
// its catalog, or what it waits for. The latest one before the run's gate counts.
type CompiledFor struct {
	For tutti.NodeName `json:"for"`
	Gate
	Waits []tutti.Wait `json:"waits,omitempty"`
	// Failed: there is no catalog.
	Failed bool `json:"failed,omitempty"`
	// CatalogUUID is that of the catalog, if it goes to PuppetDB next. Then its exports
	// count from now on, also those of a foreign run, because PuppetDB will have them.
	CatalogUUID string      `json:"catalog_uuid,omitempty"`
	Lags        []tutti.Lag `json:"lags,omitempty"`
}

// Stored is a catalog of a node that PuppetDB has: it keeps one of each.
type Stored struct {
	Run         tutti.RunID `json:"transaction_uuid"`
	CatalogUUID string      `json:"catalog_uuid"` // one run may compile several
	// Found: a resource of it is in the answer.
	Found bool `json:"found,omitempty"`
}
