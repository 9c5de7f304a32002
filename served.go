package tutti

import (
	"fmt"
)

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
