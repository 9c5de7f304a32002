package wire

import "github.com/tutti-project/tutti"

// BeginServed says that the Puppet Server on the sending node compiles a catalog for another node. The
// sending node needs the grant `compile`.
type BeginServed struct {
	Run tutti.RunID    `json:"run"` // the uuid of the transaction; foreign runs have one, too
	For tutti.NodeName `json:"for"`
}

// ServedBegun is the answer to BeginServed.
type ServedBegun struct {
	// The field Node is true if the field For names a node of the fleet. If For names another
	// machine, the server answers no question for it.
	Node bool `json:"node"`
	// Recorded is true if Tutti ordered the run. A recorded run needs a ServedCatalog to continue.
	Recorded bool `json:"recorded"`
}

// ServedCatalog contains the reads and exports of a compile on a Puppet Server. The compile host sends the message
// before the node gets its catalog. If the run waits, the message has the questions for which the run waits. If there
// are several ServedCatalog messages before the run's gate, the gate uses the latest one.
type ServedCatalog struct {
	For tutti.NodeName `json:"for"`
	Gate
	Waits []tutti.Wait `json:"waits,omitempty"`
	// Failed is true if there is no catalog.
	Failed bool `json:"failed,omitempty"`
	// CatalogUUID is the uuid of the catalog, if the catalog goes to PuppetDB next. If the catalog goes to PuppetDB,
	// Tutti uses the exports from now on, even for a foreign run, because PuppetDB will have these exports.
	CatalogUUID string      `json:"catalog_uuid,omitempty"`
	Lags        []tutti.Lag `json:"lags,omitempty"`
}

// Stored describes the catalog that PuppetDB has stored for a node. PuppetDB stores one catalog for
// each node.
type Stored struct {
	Run         tutti.RunID `json:"transaction_uuid"`
	CatalogUUID string      `json:"catalog_uuid"` // one run may compile several catalogs
	// Found is true if the answer contains a resource of this catalog.
	Found bool `json:"found,omitempty"`
}
