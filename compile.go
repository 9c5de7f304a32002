package tutti

import "fmt"

// Compile says that the Puppet Server of the sending node compiles a catalog for a
// node. It takes the grant `compile`.
type Compile struct {
	Run RunID    `json:"run"` // the transaction's uuid; of no run of ours if others started it
	For NodeName `json:"for"`
}

// Compiling is the answer.
type Compiling struct {
	// Node: For is a node of the fleet. If it is not, nothing is answered for it.
	Node bool `json:"node"`
	// Recorded: it is a run of ours, which cannot go on without a CompiledFor.
	Recorded bool `json:"recorded"`
}

// CompiledFor is what such a compile read and exports, sent before the node gets
// its catalog, or what it waits for. The latest one before the run's gate counts.
type CompiledFor struct {
	For NodeName `json:"for"`
	Gate
	Waits []Wait `json:"waits,omitempty"`
	// Failed: there is no catalog.
	Failed bool `json:"failed,omitempty"`
	// CatalogUUID is that of the catalog, if it goes to PuppetDB next. Then its exports
	// count from now on, of a run of others too: it is those that PuppetDB will have.
	CatalogUUID string `json:"catalog_uuid,omitempty"`
	Lags        []Lag  `json:"lags,omitempty"`
}

// Stored is a catalog of a node that PuppetDB has: it keeps one of each.
type Stored struct {
	Run         RunID  `json:"transaction_uuid"`
	CatalogUUID string `json:"catalog_uuid"` // one run may compile several
	// Found: a resource of it is in the answer.
	Found bool `json:"found,omitempty"`
}

// Lag is an exporter whose latest catalog PuppetDB did not have when it answered a
// collector.
type Lag struct {
	Node NodeName `json:"node"`
	Run  RunID    `json:"run,omitempty"` // of that catalog; empty: Tutti knows none
}

func (l Lag) String() string {
	if l.Run == "" {
		return fmt.Sprintf("node %s, of which PuppetDB has exports, was not compiled since its Puppet Server has the module", l.Node)
	}
	return fmt.Sprintf("PuppetDB has not stored run %s of node %s yet", l.Run, l.Node)
}

// Served is what a Puppet Server handed over of a run, besides what was asked.
type Served struct {
	By    NodeName `json:"by"`            // the compile host
	Set   Digest   `json:"set,omitempty"` // of the exports, empty: none
	Count int      `json:"count,omitempty"`
	Waits []Wait   `json:"waits,omitempty"`
	// Record is what was asked with where in the code, as a Record; empty: older ones
	// have none.
	Record Digest `json:"record,omitempty"`
	// Failed: there is no catalog; if it waits or lags, that is why.
	Failed bool `json:"failed,omitempty"`
	// CatalogUUID: the exports are in PuppetDB and count already.
	CatalogUUID string `json:"catalog_uuid,omitempty"`
	// Lags: it was compiled with answers of PuppetDB that were not up to date, and is
	// not to be applied.
	Lags []Lag `json:"lags,omitempty"`
}
