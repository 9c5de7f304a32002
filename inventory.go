package tutti

import "time"

// InventoryRules says what the server holds about each node for queries (ADR 0036).
type InventoryRules struct {
	Facts     bool `json:"facts,omitempty"`
	Resources bool `json:"resources,omitempty"`
}

// InventoryPart is a part of what the server holds about a node.
type InventoryPart string

// The parts.
const (
	InventoryFacts   InventoryPart = "facts"
	InventoryCatalog InventoryPart = "catalog"
)

// Wants reports whether the rules ask for a part.
func (r InventoryRules) Wants(part InventoryPart) bool {
	return r.Facts && part == InventoryFacts || r.Resources && part == InventoryCatalog
}

// Limits of an inventory.
const (
	MaxFactsBlob     = 1 << 20  // bytes of a node's facts in gzip
	MaxFactsJSON     = 8 << 20  // bytes of a node's facts as JSON
	MaxCatalogBlob   = 4 << 20  // bytes of a node's catalog in gzip
	MaxCatalogJSON   = 32 << 20 // bytes of a node's catalog as JSON
	MaxInventoryLeft = 200      // bytes of the reason why a part is left out
	// MaxInventories is the largest number of bytes that all nodes together hold.
	MaxInventories = 16 << 30
)

// Most returns the largest number of bytes of a part, in gzip and as JSON.
func (p InventoryPart) Most() (blob, json int64) {
	if p == InventoryCatalog {
		return MaxCatalogBlob, MaxCatalogJSON
	}
	return MaxFactsBlob, MaxFactsJSON
}

// Held describes one part of a node's inventory.
type Held struct {
	// Blob is the digest of the content in gzip. Blob is empty if Left is set.
	Blob Digest `json:"blob,omitempty"`
	// State is a digest that the node computes. If the node has the same State again, it does not send the content again.
	State       Digest    `json:"state"`
	At          time.Time `json:"at"`            // when the content was collected or compiled, by the clock of the node
	Run         RunID     `json:"run,omitempty"` // the run whose settings or catalog it is
	Environment string    `json:"environment,omitempty"`
	Size        int64     `json:"size,omitempty"` // bytes of the blob
	Left        string    `json:"left,omitempty"` // why the node has left out the content
}

// Validate refuses a part that no agent sends.
func (h Held) Validate() error {
	if err := h.State.Validate(); err != nil {
		return Wrap(CodeInvalid, err, "inventory: state")
	}
	if (h.Blob == "") == (h.Left == "") {
		return Errorf(CodeInvalid, "inventory: it has either content or a reason for its lack")
	}
	if h.Blob != "" {
		if err := h.Blob.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "inventory: content")
		}
	}
	if h.Run != "" {
		if err := h.Run.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "inventory")
		}
	}
	const most = 255 // bytes of the name of an environment
	if len(h.Left) > MaxInventoryLeft || len(h.Environment) > most || h.Size < 0 {
		return Errorf(CodeInvalid, "inventory: a reason of %d bytes and an environment of %d bytes, at most %d and %d", len(h.Left), len(h.Environment), MaxInventoryLeft, most)
	}
	return nil
}
