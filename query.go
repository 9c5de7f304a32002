package tutti

import (
	"encoding/json"
	"fmt"
)

// QueryKind is the kind of a question to the data plane.
type QueryKind string

// The kinds of questions. A hiera question is about one key of the hiera level (see package data).
// A collect question is a collector.
const (
	QueryValue   QueryKind = "value"
	QueryHiera   QueryKind = "hiera"
	QueryCollect QueryKind = "collect"
	// QueryGroups asks for the groups of the asking node. It has neither a key nor a type.
	QueryGroups QueryKind = "groups"
	// QueryENC asks for the classes and parameters that the site's ENC gives to the asking node. It has neither a key nor
	// a type.
	QueryENC QueryKind = "enc"
	// QueryPublished asks for a value that the node itself has published. A question of this kind is not recorded as a
	// read.
	QueryPublished QueryKind = "published"
)

// Query is a question in normal form, so that equal questions have equal encodings.
type Query struct {
	Kind QueryKind `json:"kind"`
	Key  string    `json:"key,omitempty"`  // for the kinds value and hiera
	Type string    `json:"type,omitempty"` // for the kind collect: Capitalised::Type
	// Filter belongs to a collect question and is the normal form of a filter. Without Filter all
	// resources match.
	Filter json.RawMessage `json:"filter,omitempty"`
}

// String names the question for people. A collector has the form that Puppet writes.
func (q Query) String() string {
	switch {
	case q.Kind == QueryCollect:
		return collector(q.Type, q.Filter)
	case q.Kind == QueryHiera && q.Key == "":
		return "the hiera level"
	case q.Kind == QueryGroups:
		return "the list of its groups"
	case q.Kind == QueryENC:
		return "the answer of the ENC"
	}
	return fmt.Sprintf("%s %q", q.Kind, q.Key)
}

// Own reports whether each node has its own answer to the question, so that the question has neither a key nor a type.
func (q Query) Own() bool { return q.Kind == QueryGroups || q.Kind == QueryENC }

// Equal reports whether two questions in normal form are equal.
func (q Query) Equal(other Query) bool {
	return q.Kind == other.Kind && q.Key == other.Key && q.Type == other.Type && string(q.Filter) == string(other.Filter)
}

// Place is the place in the Puppet code where a question was asked, if Puppet reports it.
type Place struct {
	Resource string `json:"resource,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}

// Read is a question of a run, with the digest of the answer that the run got. Seq is the log's
// sequence at the time when the server computed the answer.
type Read struct {
	Query    Query  `json:"query"`
	Found    bool   `json:"found"`
	Digest   Digest `json:"digest,omitempty"`
	Seq      uint64 `json:"seq"`
	Degraded bool   `json:"degraded,omitempty"`
	At       Place  `json:"at,omitzero"`
}

// Export is an exported resource. Parameters use Puppet's rich data encoding, which is the same in
// 7 and 8. Parameters that are named in Sensitive are left out.
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

// KeyRead is one hiera key that a compile looked up. Found says whether Tutti's level had a value
// for the key.
type KeyRead struct {
	Key   string `json:"key"`
	Found bool   `json:"found"`
	At    Place  `json:"at,omitzero"`
}

// CatalogReport describes a compiled catalog, without its exports.
type CatalogReport struct {
	Catalog Digest `json:"catalog"` // normalised
	// Sources is the digest of the content of all puppet:/// sources in the catalog. If Sources is
	// empty, the content is unknown, and is treated as different.
	Sources Digest `json:"sources,omitempty"`
	Lib     Digest `json:"lib,omitempty"`    // Lib is the digest of lib/ and facts.d/ in all modules.
	Facts   Digest `json:"facts,omitempty"`  // without volatile facts
	Puppet  string `json:"puppet,omitempty"` // version
	Module  string `json:"module,omitempty"` // Module is the version of the module tutti.
	// Deferred is true if the catalog has values that Puppet resolves while it applies the catalog.
	Deferred bool `json:"deferred,omitempty"`
	// Values lists the keys that the catalog publishes, sorted.
	Values []string `json:"values,omitempty"`
}

// Questions lists all questions of a run. Two runs with the same answers have equal lists: Reads are
// sorted by question and have neither places nor sequences. Absent names the blob of AbsentKeys.
type Questions struct {
	Reads  []Read   `json:"reads"`
	Absent Digest   `json:"absent,omitempty"`
	Keys   []string `json:"-"` // Keys is the content of Absent: the sorted hiera keys that Tutti's level did not have.
}

// Inputs are the digests of all other inputs of a catalog.
type Inputs struct {
	Code    Digest `json:"code"`
	Mode    Mode   `json:"mode"`
	Puppet  string `json:"puppet"`
	Module  string `json:"module"`
	Facts   Digest `json:"facts,omitempty"`
	Catalog Digest `json:"catalog,omitempty"`
	Sources Digest `json:"sources,omitempty"` // as in CatalogReport
	Lib     Digest `json:"lib,omitempty"`
}

// Record is what one run read and published.
type Record struct {
	Run    RunID    `json:"run"`
	Node   NodeName `json:"node"`
	Inputs Inputs   `json:"inputs"`
	Reads  []Read   `json:"reads"`
	// Keys lists all hiera keys that the run looked up. Keys with a value are also in Reads.
	Keys      []KeyRead         `json:"keys"`
	Exports   []string          `json:"exports,omitempty"`   // references
	Published map[string]Digest `json:"published,omitempty"` // values, by key
}
