package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// Inventories answers questions about the facts, catalogs and runs that the server holds (ADR 0036).
type Inventories interface {
	// Query calls yield once for each node that has rows, or whose answer is unknown, in the order of the names. The
	// error is CodeInvalid if an expression is wrong, and CodeConflict if the fleet file does not let the server hold
	// what the question is about.
	Query(ctx context.Context, in Query, yield func(QueriedNode) error) error
}

// QueryOf is what a query is about.
type QueryOf string

// The subjects of queries.
const (
	QueryFacts     QueryOf = "facts"     // one row for each node
	QueryResources QueryOf = "resources" // one row for each resource of the catalog
	QueryClasses   QueryOf = "classes"   // one row for each class of the catalog
	QueryRuns      QueryOf = "runs"      // one row for each run, the latest first
)

// Query is a question about what the server holds. On and Where are expressions in CEL. An empty expression is true.
type Query struct {
	Of    QueryOf  `json:"of"`
	On    string   `json:"on,omitempty"`    // about nodes, see package selector
	Where string   `json:"where,omitempty"` // about rows
	Show  []string `json:"show,omitempty"`  // the parts of a row that are the answer, as paths with points
}

// QueriedNode is the answer of a query for one node.
type QueriedNode struct {
	Node        tutti.NodeName `json:"node"`
	At          time.Time      `json:"at,omitzero"` // when the facts were collected, or the catalog was compiled; zero for runs
	Environment string         `json:"environment,omitempty"`
	Run         tutti.RunID    `json:"run,omitempty"`
	Rows        []QueryRow     `json:"rows,omitempty"`
	// Unknown is the reason why nobody knows the answer for this node. There may be rows, too.
	Unknown string `json:"unknown,omitempty"`
	// Old is the reason why the rows may differ from the node's present state.
	Old string `json:"old,omitempty"`
}

// QueryRow is a row of an answer.
type QueryRow struct {
	// Name is empty for facts. Otherwise Name is the reference of a resource, the name of a class, or the id of a run.
	Name string `json:"name,omitempty"`
	// Values has one value for each path of Query.Show. A path that the row does not have is null. If the query names
	// no path, the only value is the whole row.
	Values []json.RawMessage `json:"values"`
}
