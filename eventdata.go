package tutti

import "encoding/json"

// dataEvents are the kinds of events of shared data.
var dataEvents = []eventKind{
	{func() Body { return new(ExportsSet) }, ScopeNode, TrailOperators, KeepOwn},
	{func() Body { return new(ValueSet) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(ValueUnset) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(SecretSealed) }, ScopeNone, TrailOperators, KeepOwn},
}

// ExportsSet replaces a node's exports as a whole. Overlay sets are read
// by their own job only. Exports is the content of the blob Set; the log
// holds the digest alone.
type ExportsSet struct {
	Node    NodeName `json:"node"`
	Run     RunID    `json:"run"`
	Job     JobID    `json:"job,omitempty"`
	Overlay bool     `json:"overlay,omitempty"`
	Set     Digest   `json:"set"`
	Count   int      `json:"count"`
	Exports []Export `json:"-"`
	// CatalogUUID is that of the catalog that PuppetDB has or will have them from;
	// the run may be one that others started. Empty: they are not in PuppetDB.
	CatalogUUID string `json:"catalog_uuid,omitempty"`
}

// Kind implements Body.
func (*ExportsSet) Kind() string { return "exports.set" }

// ID implements Body.
func (b *ExportsSet) ID() string { return string(b.Node) }

// ValueSet gives a key a value. Owner is a node, or empty for operators.
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
