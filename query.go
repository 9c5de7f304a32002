package tutti

import (
	"encoding/json"
	"fmt"
)

// QueryKind is the kind of a question to the data plane.
type QueryKind string

// The kinds of questions. A hiera question is about one key as the hiera level
// sees it (see package data); a collect question is a collector.
const (
	QueryValue   QueryKind = "value"
	QueryHiera   QueryKind = "hiera"
	QueryCollect QueryKind = "collect"
	// QueryPublished is what a key of the node itself holds. It does not count as a read.
	QueryPublished QueryKind = "published"
)

// Query is a question in normal form: equal questions have equal encodings.
type Query struct {
	Kind   QueryKind       `json:"kind"`
	Key    string          `json:"key,omitempty"`    // value, hiera
	Type   string          `json:"type,omitempty"`   // collect: Capitalised::Type
	Filter json.RawMessage `json:"filter,omitempty"` // collect: normal form of a filter, absent for all
}

// String names the question, for people: a collector as Puppet writes it.
func (q Query) String() string {
	switch {
	case q.Kind == QueryCollect:
		return collector(q.Type, q.Filter)
	case q.Kind == QueryHiera && q.Key == "":
		return "the hiera level"
	}
	return fmt.Sprintf("%s %q", q.Kind, q.Key)
}

// Equal reports whether two questions in normal form are the same.
func (q Query) Equal(other Query) bool {
	return q.Kind == other.Kind && q.Key == other.Key && q.Type == other.Type && string(q.Filter) == string(other.Filter)
}

// Place is where in the Puppet code a question was asked, as far as Puppet
// tells.
type Place struct {
	Resource string `json:"resource,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// Read is a question that a run asked, and the digest of the answer that it
// was given. Seq is the log's sequence at which the answer was computed.
type Read struct {
	Query    Query  `json:"query"`
	Found    bool   `json:"found"`
	Digest   Digest `json:"digest,omitempty"`
	Seq      uint64 `json:"seq"`
	Degraded bool   `json:"degraded,omitempty"`
	At       Place  `json:"at,omitzero"`
}

// Export is an exported resource. Parameters are in Puppet's rich data
// encoding, which 7 and 8 share; those named in Sensitive are left out.
type Export struct {
	Type       string                     `json:"type"`
	Title      string                     `json:"title"`
	Node       NodeName                   `json:"node,omitempty"`
	Tags       []string                   `json:"tags,omitempty"`
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
	Sensitive  []string                   `json:"sensitive,omitempty"`
	File       string                     `json:"file,omitempty"`
	Line       int                        `json:"line,omitempty"`
}

// Ref is the resource's reference, `Type[title]`.
func (e Export) Ref() string { return e.Type + "[" + e.Title + "]" }

// KeyRead is one hiera key that a compile looked up; Found says whether
// Tutti's level had it.
type KeyRead struct {
	Key   string `json:"key"`
	Found bool   `json:"found"`
	At    Place  `json:"at,omitzero"`
}

// Compiled is what a compiled catalog is, besides its exports.
type Compiled struct {
	Catalog Digest `json:"catalog"`           // normalised
	Sources Digest `json:"sources,omitempty"` // of the content of all puppet:/// sources that it names; empty: unknown, never equal
	Lib     Digest `json:"lib,omitempty"`     // of lib/ and facts.d/ of all modules
	Facts   Digest `json:"facts,omitempty"`   // without volatile ones
	Puppet  string `json:"puppet,omitempty"`  // version
	Module  string `json:"module,omitempty"`  // version of the module tutti
	// Deferred: it has values that are resolved while it is applied.
	Deferred bool `json:"deferred,omitempty"`
	// Values are the keys that it wants published, sorted.
	Values []string `json:"values,omitempty"`
}

// Asked is all that a run asked, without what differs between runs that were
// given the same answers: Reads are sorted by question and have neither places
// nor sequences. Absent is the blob of AbsentKeys.
type Asked struct {
	Reads  []Read   `json:"reads"`
	Absent Digest   `json:"absent,omitempty"`
	Keys   []string `json:"-"` // the content of Absent: hiera keys that Tutti's level did not have, sorted
}

// Inputs are the digests of everything else that decides a catalog.
type Inputs struct {
	Code    Digest `json:"code"`
	Mode    Mode   `json:"mode"`
	Puppet  string `json:"puppet"`
	Module  string `json:"module"`
	Facts   Digest `json:"facts,omitempty"`
	Catalog Digest `json:"catalog,omitempty"`
	Sources Digest `json:"sources,omitempty"` // as in Compiled
	Lib     Digest `json:"lib,omitempty"`
}

// Record is what one run read and published.
type Record struct {
	Run       RunID             `json:"run"`
	Node      NodeName          `json:"node"`
	Inputs    Inputs            `json:"inputs"`
	Reads     []Read            `json:"reads"`
	Keys      []KeyRead         `json:"keys"`                // all hiera keys; those found are in Reads too
	Exports   []string          `json:"exports,omitempty"`   // references
	Published map[string]Digest `json:"published,omitempty"` // values, by key
}
