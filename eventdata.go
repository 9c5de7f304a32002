package tutti

import "encoding/json"

// dataEvents are the kinds of events about shared data.
var dataEvents = []eventKind{
	{func() Body { return new(ExportsSet) }, ScopeNode, TrailOperators, KeepOwn},
	{func() Body { return new(ValueSet) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(ValueUnset) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(SecretSealed) }, ScopeNone, TrailOperators, KeepOwn},
}

// ExportsSet replaces all exports of a node. If Overlay is true, only the runs of the same job see
// these exports. Exports is the content of the blob with the digest Set. The log contains only this
// digest.
type ExportsSet struct {
	Node    NodeName `json:"node"`
	Run     RunID    `json:"run"`
	Job     JobID    `json:"job,omitempty"`
	Overlay bool     `json:"overlay,omitempty"`
	Set     Digest   `json:"set"`
	Count   int      `json:"count"`
	Exports []Export `json:"-"`
	// CatalogUUID is the uuid of the catalog with which the exports reach PuppetDB. If the exports
	// are in PuppetDB, Run may be a foreign run. CatalogUUID is empty if the exports are not in
	// PuppetDB.
	CatalogUUID string `json:"catalog_uuid,omitempty"`
}

// Kind implements Body.
func (*ExportsSet) Kind() string { return "exports.set" }

// ID implements Body.
func (b *ExportsSet) ID() string { return string(b.Node) }

// ValueSet says that a node or an operator has set the value of a key. Owner is the node. Owner is
// empty if an operator set the value.
type ValueSet struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	Owner NodeName        `json:"owner,omitempty"`
	Run   RunID           `json:"run,omitempty"`
	Job   JobID           `json:"job,omitempty"`
}

// Kind implements Body.
func (*ValueSet) Kind() string { return "value.set" }

// ID implements Body.
func (b *ValueSet) ID() string { return b.Key }

// ValueUnset withdraws a value.
type ValueUnset struct {
	Key   string   `json:"key"`
	Owner NodeName `json:"owner,omitempty"`
	Run   RunID    `json:"run,omitempty"`
	Job   JobID    `json:"job,omitempty"`
}

// Kind implements Body.
func (*ValueUnset) Kind() string { return "value.unset" }

// ID implements Body.
func (b *ValueUnset) ID() string { return b.Key }
