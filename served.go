package tutti

import (
	"fmt"
)

// Lag names an exporting node. When PuppetDB answered a collector, it did not have the latest
// catalog of this node.
type Lag struct {
	Node NodeName `json:"node"`
	Run  RunID    `json:"run,omitempty"` // Run is the run of that catalog. Run is empty if Tutti knows no such run.
}

func (l Lag) String() string {
	if l.Run == "" {
		return fmt.Sprintf("PuppetDB has exports of node %s, but the node was not compiled since its Puppet Server got the module", l.Node)
	}
	return fmt.Sprintf("PuppetDB has not stored run %s of node %s yet", l.Run, l.Node)
}

// Served is the data that a Puppet Server hands over for a run, in addition to the questions of the run.
type Served struct {
	By    NodeName `json:"by"`            // the compile host
	Set   Digest   `json:"set,omitempty"` // Set is the digest of the exports. Set is empty if there are no exports.
	Count int      `json:"count,omitempty"`
	Waits []Wait   `json:"waits,omitempty"`
	// Record is a Record with the questions and their places in the code. Record is empty in older
	// events.
	Record Digest `json:"record,omitempty"`
	// Failed is true if there is no catalog. Waits and Lags may give the reason.
	Failed bool `json:"failed,omitempty"`
	// CatalogUUID is set if the exports are in PuppetDB, where other nodes can read them already.
	CatalogUUID string `json:"catalog_uuid,omitempty"`
	// Lags lists the exporters whose latest catalog PuppetDB did not have. If Lags is not empty,
	// the catalog was compiled with old answers of PuppetDB, and the node must not apply the
	// catalog.
	Lags []Lag `json:"lags,omitempty"`
}
